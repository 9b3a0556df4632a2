// SPDX-License-Identifier: BSD-2-Clause
// verbs_bench: the latency of one QP beside the bulk traffic of another. Run by bench/limits.
#include "bench/limits_src/verbs_bench.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/limits_src/process.h"

int main(int argc, char** argv) {
  using namespace uroce::limits;
  CLI::App app("Measures two QPs of one process: one waits for answers, one writes in bulk");
  VerbsBenchOptions options;
  options.peer.tcp = true;
  app.add_option("--dev", options.device, "RDMA device")->required();
  app.add_option("--peer", options.peer.address, "ping: IPv4 address of the other side");
  app.add_option("--path-mtu", options.path_mtu, "path MTU")->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--bulk", options.bulk_bytes, "ping: length of the WRITEs; 0: none")->check(CLI::Range(0, 1 << 30));
  app.add_option("--depth", options.bulk_depth, "ping: WRITEs under way")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds, "ping: how long");
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* const ping = app.add_subcommand("ping", "send, wait for the answer, report round trips and bulk");
  app.add_subcommand("pong", "answer until SIGTERM");
  CLI11_PARSE(app, argc, argv);

  try {
    stop_on_signals();
    (*ping ? run_verbs_ping : run_verbs_pong)(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_bench: %s\n", error.what());
    return 1;
  }
}

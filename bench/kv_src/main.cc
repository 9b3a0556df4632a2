// SPDX-License-Identifier: BSD-2-Clause
// kv_bench: see kv.h. Run by bench/events and tests/e2e/key_value.py; over verbs below `uroce run`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>

#include "bench/kv_src/kv.h"
#include "bench/limits_src/process.h"

int main(int argc, char** argv) {
  using namespace uroce::kv;
  CLI::App app("A key-value server that sleeps in epoll, and its load generator");
  Options options;
  const std::map<std::string, Over> ways{{"tcp", Over::kTcp}, {"verbs", Over::kVerbs}, {"datagrams", Over::kDatagrams}};
  app.add_option("--over", options.over,
                 "tcp, verbs, datagrams (what UDP alone does with as many of them; a reference)")
      ->transform(CLI::CheckedTransformer(ways, CLI::ignore_case));
  app.add_option("--dev", options.device, "RDMA device");
  app.add_option("--peer", options.peer, "IPv4 address of the server");
  app.add_option("--port", options.port, "TCP port of the server");
  app.add_flag("--channel-each", options.channel_each, "verbs: a completion channel for each connection");
  app.add_option("--value-bytes", options.value_bytes, "client: of each value (datagrams: server, too)")
      ->check(CLI::Range(1u, kMostValue));
  app.add_option("--connections", options.connections, "client: how many")->check(CLI::Range(1, 10000));
  app.add_option("--window", options.window, "client: requests under way on each")->check(CLI::Range(1u, kMostWindow));
  app.add_option("--gets", options.gets, "client: percent; the others set a value")->check(CLI::Range(0, 100));
  app.add_option("--requests-each", options.requests_each, "client: after so many a connection makes room for another");
  app.add_flag("--check-all", options.checks_all, "client: every byte of each value, not some of them");
  app.add_option("--seconds", options.seconds, "client: how long");
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* const server = app.add_subcommand("server", "answer until SIGTERM");
  app.add_subcommand("client", "set and get, check every answer, and report");
  CLI11_PARSE(app, argc, argv);
  options.server = server->parsed();
  const char* const missing = !options.server && options.peer.empty()                  ? "--peer ADDRESS"
                              : options.over == Over::kVerbs && options.device.empty() ? "--dev DEVICE"
                                                                                       : nullptr;
  if (missing != nullptr) {
    std::fprintf(stderr, "kv_bench: %s is missing\n", missing);
    return 2;
  }
  try {
    uroce::limits::stop_on_signals();
    if (options.over == Over::kDatagrams) {
      exchange_datagrams(options);
    } else {
      options.server ? serve(options) : load(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kv_bench: %s\n", error.what());
    return 1;
  }
}

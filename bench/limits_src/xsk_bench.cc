// SPDX-License-Identifier: BSD-2-Clause
// xsk_bench: what AF_XDP sockets can do on this machine with nothing above them. Run by bench/limits.
#include "bench/limits_src/xsk_bench.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/limits_src/frame.h"
#include "bench/limits_src/process.h"

namespace {

using namespace uroce::limits;

struct Mode {
  const char* name;
  const char* help;
  void (*run)(const XskBenchOptions&);
};

constexpr Mode kModes[] = {
    {"ping", "send a frame, wait for the reply, report round trips", run_ping},
    {"pong", "reply to each frame, until SIGTERM", run_pong},
    {"blast", "send as fast as possible, until SIGTERM", run_blast},
    {"sink", "receive for --seconds from the first frame on and report the rate", run_sink},
    {"kick", "report the duration of sendto() for several numbers of descriptors", run_kick},
    {"arrivals", "report when the frames of `kick` arrive, until SIGTERM", run_arrivals},
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures AF_XDP sockets (copy mode, native XDP) between two netdevs");
  XskBenchOptions options;
  options.bursts = {0, 1, 2, 4, 8, 16, 32};
  app.add_option("--dev", options.netdev, "netdev")->required();
  app.add_option("--bytes", options.send_bytes, "frame length without FCS (sink: expected)")
      ->check(CLI::Range(kMinFrameBytes, 9014u));
  app.add_option("--iterations", options.iterations, "ping, kick: measured repetitions");
  app.add_option("--turn", options.turn, "ping, pong: frames that go forth and come back by one system call")
      ->check(CLI::Range(1, 16));
  app.add_option("--seconds", options.seconds, "sink: length of the window");
  app.add_option("--payload", options.payload, "sink: payload bytes per frame, for Gb/s");
  app.add_option("--batch", options.batch, "blast: frames queued per system call");
  app.add_option("--frames", options.frames, "UMEM chunks per direction, a power of two");
  app.add_option("--bursts", options.bursts, "kick: numbers of descriptors per call")->delimiter(',');
  app.add_flag("--generic", options.generic, "XDP in SKB mode");
  app.require_subcommand(1);
  app.fallthrough();
  for (const Mode& mode : kModes) app.add_subcommand(mode.name, mode.help);
  CLI11_PARSE(app, argc, argv);

  try {
    stop_on_signals();
    for (const Mode& mode : kModes) {
      if (app.got_subcommand(mode.name)) mode.run(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "xsk_bench: %s\n", error.what());
    return 1;
  }
}

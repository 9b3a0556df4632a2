// SPDX-License-Identifier: BSD-2-Clause
// socket_bench: what the kernel's UDP and TCP do between the same two netdevs. Run by bench/limits.
#include "bench/limits_src/socket_bench.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/limits_src/process.h"

namespace {

using namespace uroce::limits;

struct Mode {
  const char* name;
  const char* help;
  void (*run)(const SocketBenchOptions&);
};

constexpr Mode kModes[] = {
    {"ping", "send a message, wait for its echo, report round trips", run_socket_ping},
    {"pong", "echo messages until the peer leaves or SIGTERM", run_socket_pong},
    {"blast", "send as fast as possible until the peer leaves or SIGTERM", run_socket_blast},
    {"sink", "receive for --seconds and report the rate", run_socket_sink},
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures kernel UDP and TCP sockets between two netdevs");
  SocketBenchOptions options;
  app.add_flag("--tcp", options.peer.tcp, "TCP instead of UDP");
  app.add_flag("--ipv6", options.peer.ipv6, "IPv6 instead of IPv4");
  app.add_option("--peer", options.peer.address, "ping, blast: address of the other side");
  app.add_option("--bytes", options.bytes, "message, datagram or block length")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--busy", options.busy, "ping, pong: spin instead of blocking");
  app.add_option("--turn", options.turn, "ping, pong: messages that go forth and come back by one system call")
      ->check(CLI::Range(1, 16));
  app.add_flag("--run", options.run, "UDP ping, pong: the messages of a turn are one run (UDP_SEGMENT, UDP_GRO)");
  app.add_option("--as-uroce", options.as_uroce,
                 "UDP ping, pong: a socket on this netdev as uroce has it, not connected; both sides have --peer")
      ->option_text("NETDEV");
  app.add_option("--local", options.local, "with --as-uroce: IPv4 address of this side");
  app.add_option("--iterations", options.iterations, "ping: measured repetitions");
  app.add_option("--seconds", options.seconds, "sink: length of the window");
  app.add_option("--payload", options.payload, "UDP sink: payload bytes per datagram");
  app.add_option("--segments", options.segments, "UDP blast and sink: datagrams of a run (UDP_SEGMENT, UDP_GRO)")
      ->check(CLI::Range(1, 64));
  app.add_flag("--gather", options.gather, "UDP blast of runs: headers, payload and ICRC of a datagram lie apart");
  app.add_flag("--sum", options.sum, "UDP blast and sink of runs: payload is copied and summed (CRC-32) at both ends");
  app.add_option("--acknowledge", options.acknowledge,
                 "UDP blast and sink of runs: an answer to every so many datagrams, at most 264 without one under way")
      ->check(CLI::Range(1, 128));
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
    std::fprintf(stderr, "socket_bench: %s\n", error.what());
    return 1;
  }
}

// socket_bench: what the kernel's UDP and TCP do between the same two netdevs. Run by bench/limits.
#include "bench/limits_src/socket_bench.h"

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include "bench/limits_src/process.h"

namespace uroce::limits {
namespace {

int open_socket(const SocketBenchOptions& options) {
  const int fd = socket(AF_INET, options.tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
  if (fd < 0) fail_with_errno("socket");
  const int on = 1;
  if (options.tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int buffer_bytes = 8 << 20;  // as root beyond net.core.rmem_max; TCP sizes its own
  if (!options.tcp) setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
  return fd;
}

sockaddr_in ipv4_endpoint(const char* address) {
  sockaddr_in endpoint = {};
  endpoint.sin_family = AF_INET;
  endpoint.sin_port = htons(kSocketBenchPort);
  if (inet_pton(AF_INET, address, &endpoint.sin_addr) != 1) throw std::runtime_error("not an IPv4 address");
  return endpoint;
}

}  // namespace

void fail_with_errno(const char* step) {
  throw std::system_error(errno, std::generic_category(), step);
}

int connect_to_peer(const SocketBenchOptions& options) {
  const int fd = open_socket(options);
  const sockaddr_in peer = ipv4_endpoint(options.peer.c_str());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0) fail_with_errno("connect");
  return fd;
}

int wait_for_peer(const SocketBenchOptions& options) {
  const int fd = open_socket(options);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in local = ipv4_endpoint("0.0.0.0");
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) fail_with_errno("bind");
  if (options.tcp && listen(fd, 1) != 0) fail_with_errno("listen");
  announce_ready();
  if (!options.tcp) return fd;
  const int connection = accept(fd, nullptr, nullptr);
  if (connection < 0) fail_with_errno("accept");
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(fd);
  return connection;
}

}  // namespace uroce::limits

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
  int cpu = -1;
  app.add_flag("--tcp", options.tcp, "TCP instead of UDP");
  app.add_option("--cpu", cpu, "pin to this CPU");
  app.add_option("--peer", options.peer, "ping, blast: IPv4 address of the other side");
  app.add_option("--bytes", options.bytes, "message, datagram or block length")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--busy", options.busy, "ping, pong: spin instead of blocking");
  app.add_option("--iterations", options.iterations, "ping: measured repetitions");
  app.add_option("--seconds", options.seconds, "sink: length of the window");
  app.add_option("--payload", options.payload, "UDP sink: payload bytes per datagram");
  app.add_option("--segments", options.segments, "UDP blast: datagrams per UDP_SEGMENT call")->check(CLI::Range(1, 64));
  app.require_subcommand(1);
  app.fallthrough();
  for (const Mode& mode : kModes) app.add_subcommand(mode.name, mode.help);
  CLI11_PARSE(app, argc, argv);

  try {
    if (cpu >= 0) pin_to_cpu(cpu);
    stop_on_signals();
    for (const Mode& mode : kModes) {
      if (app.got_subcommand(mode.name)) mode.run(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "socket_bench: %s\n", error.what());
    return 1;
  }
}

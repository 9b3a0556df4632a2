// socket_bench ping and pong: the round trip of one message through kernel UDP or TCP (TCP_NODELAY), blocking or
// spinning.
#include <cerrno>
#include <cstdio>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/socket_bench.h"

namespace uroce::limits {
namespace {

// One whole message, which a TCP stream may bring in pieces. False when the peer has left or on SIGTERM.
bool receive_message(int fd, std::vector<uint8_t>& message, bool busy) {
  for (size_t have = 0; have < message.size();) {
    const ssize_t got = recv(fd, message.data() + have, message.size() - have, busy ? MSG_DONTWAIT : 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (got == 0 || errno != EAGAIN || stop_requested()) {
      return false;
    }
  }
  return true;
}

bool send_message(int fd, const std::vector<uint8_t>& message) {
  return send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

// A UDP socket learns its peer from the first datagram, so that both sides use connected sockets.
void adopt_first_sender(int fd) {
  sockaddr_storage sender;
  socklen_t length = sizeof sender;
  if (recvfrom(fd, nullptr, 0, MSG_PEEK, reinterpret_cast<sockaddr*>(&sender), &length) < 0)
    fail_with_errno("recvfrom");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&sender), length) != 0) fail_with_errno("connect");
}

}  // namespace

void run_socket_ping(const SocketBenchOptions& options) {
  const int fd = connect_to_peer(options);
  std::vector<uint8_t> message(options.bytes);
  const uint32_t warm_up = options.iterations / 10;
  std::vector<uint64_t> round_trips;
  round_trips.reserve(options.iterations);
  for (uint32_t i = 0; i < warm_up + options.iterations; ++i) {
    const uint64_t start = now_ns();
    if (!send_message(fd, message) || !receive_message(fd, message, options.busy)) break;
    if (i >= warm_up) round_trips.push_back(now_ns() - start);
  }
  close(fd);
  std::printf(R"({"mode": "ping", "message_bytes": %u, )", options.bytes);
  Latency(std::move(round_trips)).print_json(stdout);
  std::puts("}");
}

void run_socket_pong(const SocketBenchOptions& options) {
  const int fd = wait_for_peer(options);
  if (!options.tcp) adopt_first_sender(fd);
  std::vector<uint8_t> message(options.bytes);
  while (receive_message(fd, message, options.busy) && send_message(fd, message)) {
  }
  close(fd);
  std::puts(R"({"mode": "pong"})");
}

}  // namespace uroce::limits

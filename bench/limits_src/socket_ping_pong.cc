// SPDX-License-Identifier: BSD-2-Clause
// socket_bench ping and pong: the round trip of a message, or of several at a time, through kernel UDP or TCP
// (TCP_NODELAY), blocking or spinning. Several datagrams can be one run, as uroce sends an answer and an ACK.
#include <cerrno>
#include <cstdio>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "bench/limits_src/latency.h"
#include "bench/limits_src/message_batch.h"
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

// From now on what is sent in one piece leaves as datagrams of so many bytes, and such runs come in one piece.
void send_in_runs(int fd, uint32_t bytes) {
  const int on = 1, segment = static_cast<int>(bytes);
  if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) fail_with_errno("UDP_SEGMENT");
  if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0) fail_with_errno("UDP_GRO");
}

// The messages of a turn, all alike, and the buffer of those that come. A run is as one message.
class Turn {
 public:
  Turn(const SocketBenchOptions& options, int fd)
      : busy_(options.busy),
        count_(options.run ? 1 : options.turn),
        batch_(options.run ? size_t{options.bytes} * options.turn : options.bytes, count_) {
    if (options.run) send_in_runs(fd, options.bytes);
  }

  bool send_to(int fd) {
    if (count_ > 1) return sendmmsg(fd, batch_.headers.data(), count_, MSG_NOSIGNAL) == static_cast<int>(count_);
    const std::vector<uint8_t>& message = batch_.buffer;
    return send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
  }
  bool receive_from(int fd) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (!receive_message(fd, batch_.buffer, busy_)) return false;
    }
    return true;
  }

 private:
  const bool busy_;
  const uint32_t count_;
  MessageBatch batch_;
};

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
  if (!options.as_uroce.empty()) return ping_as_uroce(options);
  const int fd = connect_to_peer(options.peer);
  Turn turn(options, fd);
  const uint32_t warm_up = options.iterations / 10;
  std::vector<uint64_t> round_trips;
  round_trips.reserve(options.iterations);
  for (uint32_t i = 0; i < warm_up + options.iterations; ++i) {
    const uint64_t start = now_ns();
    if (!turn.send_to(fd) || !turn.receive_from(fd)) break;
    if (i >= warm_up) round_trips.push_back(now_ns() - start);
  }
  close(fd);
  std::printf(R"({"mode": "ping", "message_bytes": %u, )", options.bytes);
  Latency(std::move(round_trips)).print_json(stdout);
  std::puts("}");
}

void run_socket_pong(const SocketBenchOptions& options) {
  if (!options.as_uroce.empty()) return pong_as_uroce(options);
  const int fd = wait_for_peer(options.peer);
  if (!options.peer.tcp) adopt_first_sender(fd);
  Turn turn(options, fd);
  while (turn.receive_from(fd) && turn.send_to(fd)) {
  }
  close(fd);
  std::puts(R"({"mode": "pong"})");
}

}  // namespace uroce::limits

// SPDX-License-Identifier: BSD-2-Clause
// The modes of socket_bench: the same exchanges as xsk_bench through the kernel's UDP and TCP. Every mode prints one
// JSON object on stdout; the side that waits for a peer prints a line "ready" first. Errors are thrown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/limits_src/peer_socket.h"

namespace uroce::limits {

struct SocketBenchOptions {
  PeerOptions peer;
  uint32_t bytes = 2;             // ping-pong: message; UDP bulk: datagram; TCP bulk: bytes per send()
  bool busy = false;              // ping-pong: spin on MSG_DONTWAIT instead of a blocking recv()
  uint32_t turn = 1;              // ping-pong: messages that go forth and come back, by one system call
  bool run = false;               // UDP ping-pong: these are a run (UDP_SEGMENT, UDP_GRO)
  std::string as_uroce;           // UDP ping-pong: netdev; with a socket as uroce has it, between two IPv4 addresses
  std::string local;              // the side's own one of them
  uint32_t iterations = 100'000;  // ping
  double seconds = 1;             // sink: length of the window
  uint32_t payload = 0;           // UDP sink: bytes of each datagram that count as payload
  uint32_t segments = 1;          // UDP bulk: datagrams of a run; 1 is sendmmsg() of single datagrams instead
  bool gather = false;            // UDP blast of runs: each datagram out of three places
  bool sum = false;               // UDP runs: what any RoCE endpoint has to do besides, copy and CRC at both ends
  uint32_t acknowledge = 0;       // UDP runs: the sink answers every so many datagrams, the blast has a window of them
};

void run_socket_ping(const SocketBenchOptions& options);
void run_socket_pong(const SocketBenchOptions& options);   // one peer; TCP: until it leaves, UDP: until SIGTERM
void run_socket_blast(const SocketBenchOptions& options);  // until the peer leaves or SIGTERM
void run_socket_sink(const SocketBenchOptions& options);

void ping_as_uroce(const SocketBenchOptions& options);  // run_socket_ping() with as_uroce
void pong_as_uroce(const SocketBenchOptions& options);

void blast_runs(const SocketBenchOptions& options);  // run_socket_blast() with UDP_SEGMENT

// How many datagrams a blast that is acknowledged may have under way, as many as an RC QP of uroce has packets.
inline constexpr uint64_t kWindow = 264;

// What the receiving end of --sum does with a run: sums each datagram, then copies its payload to another place.
class Summer {
 public:
  explicit Summer(const SocketBenchOptions& options);
  // Returns something that depends on all sums.
  uint32_t take(std::span<const uint8_t> run);

 private:
  const uint32_t bytes_, payload_bytes_;  // of a datagram
  std::vector<uint8_t> payload_;
};

}  // namespace uroce::limits

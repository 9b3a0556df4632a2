// The modes of socket_bench: the same exchanges as xsk_bench through the kernel's UDP and TCP. Every mode prints one
// JSON object on stdout; the side that waits for a peer prints a line "ready" first. Errors are thrown.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::limits {

struct SocketBenchOptions {
  bool tcp = false;
  std::string peer;               // IPv4 address of the waiting side
  uint32_t bytes = 2;             // ping-pong: message; UDP bulk: datagram; TCP bulk: bytes per send()
  bool busy = false;              // ping-pong: spin on MSG_DONTWAIT instead of a blocking recv()
  uint32_t iterations = 100'000;  // ping
  double seconds = 1;             // sink: length of the window
  uint32_t payload = 0;           // UDP sink: bytes of each datagram that count as payload
  uint32_t segments = 1;          // UDP blast: datagrams per UDP_SEGMENT call; 1 is sendmmsg() instead
};

constexpr uint16_t kSocketBenchPort = 7471;

void run_socket_ping(const SocketBenchOptions& options);
void run_socket_pong(const SocketBenchOptions& options);   // one peer; TCP: until it leaves, UDP: until SIGTERM
void run_socket_blast(const SocketBenchOptions& options);  // until the peer leaves or SIGTERM
void run_socket_sink(const SocketBenchOptions& options);

// A connected socket to options.peer, and the waiting side's socket: UDP bound, TCP accepted from the first peer.
int connect_to_peer(const SocketBenchOptions& options);
int wait_for_peer(const SocketBenchOptions& options);
[[noreturn]] void fail_with_errno(const char* step);

}  // namespace uroce::limits

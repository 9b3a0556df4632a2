// SPDX-License-Identifier: BSD-2-Clause
// socket_bench blast and sink: bulk data through kernel UDP, datagram by datagram (sendmmsg, recvmmsg) or in runs
// (socket_runs.cc, received with UDP_GRO), and through kernel TCP. Rates are taken at the receiver.
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

constexpr uint32_t kMessagesPerCall = 32;
constexpr size_t kReceiveBytes = 256 << 10;

struct Rate {
  uint64_t bytes = 0, datagrams = 0;
  uint64_t first_ns = 0, last_ns = 0;

  // The window opens after the first arrival.
  void add(uint64_t more_bytes, uint64_t more_datagrams) {
    last_ns = now_ns();
    if (first_ns == 0) {
      first_ns = last_ns;
      return;
    }
    bytes += more_bytes;
    datagrams += more_datagrams;
  }
  double seconds() const { return static_cast<double>(last_ns - first_ns) / 1e9; }
};

void blast_datagrams(int fd, uint32_t datagram_bytes) {
  MessageBatch batch(datagram_bytes, kMessagesPerCall);
  while (!stop_requested() && (sendmmsg(fd, batch.headers.data(), kMessagesPerCall, 0) >= 0 || errno == ECONNREFUSED)) {
  }
}

void blast_blocks(int fd, size_t block_bytes) {
  const std::vector<uint8_t> block(block_bytes);
  while (!stop_requested() && (send(fd, block.data(), block.size(), MSG_NOSIGNAL) >= 0 || errno == ECONNREFUSED)) {
  }
}

void sink_datagrams(int fd, uint64_t window_ns, Rate& rate) {
  MessageBatch batch(kReceiveBytes, kMessagesPerCall);
  while (!stop_requested() && rate.last_ns - rate.first_ns < window_ns) {
    const int got = recvmmsg(fd, batch.headers.data(), kMessagesPerCall, MSG_WAITFORONE, nullptr);
    if (got < 0) break;
    uint64_t bytes = 0;
    for (int i = 0; i < got; ++i) bytes += batch.headers[static_cast<size_t>(i)].msg_len;
    rate.add(bytes, static_cast<uint64_t>(got));
  }
}

void sink_runs(int fd, uint64_t window_ns, const SocketBenchOptions& options, Rate& rate) {
  std::vector<uint8_t> block(kReceiveBytes);
  Summer summer(options);
  uint32_t sums = 0;
  uint64_t arrived = 0, acknowledged = 0;
  Endpoint from{};
  const int flags = options.acknowledge > 0 ? MSG_DONTWAIT : 0;  // who waits for answers does not wait for a sleeper
  while (!stop_requested() && rate.last_ns - rate.first_ns < window_ns) {
    from.length = sizeof from.v6;
    const ssize_t got = recvfrom(fd, block.data(), block.size(), flags, &from.any, &from.length);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) break;
    const auto bytes = static_cast<uint64_t>(got);
    if (options.sum) sums ^= summer.take({block.data(), bytes});
    rate.add(bytes, bytes / options.bytes);
    arrived += bytes / options.bytes;
    if (options.acknowledge == 0 || arrived - acknowledged < options.acknowledge) continue;
    sendto(fd, &arrived, sizeof arrived, 0, &from.any, from.length);
    acknowledged = arrived;
  }
  if (options.sum) std::fprintf(stderr, "sums: %08x\n", sums);  // they are used, so they are made
}

void sink_blocks(int fd, uint64_t window_ns, Rate& rate) {
  std::vector<uint8_t> block(kReceiveBytes);
  while (!stop_requested() && rate.last_ns - rate.first_ns < window_ns) {
    const ssize_t got = recv(fd, block.data(), block.size(), 0);
    if (got <= 0) break;
    rate.add(static_cast<uint64_t>(got), 0);
  }
}

}  // namespace

void run_socket_blast(const SocketBenchOptions& options) {
  if (options.segments > 1) {
    blast_runs(options);
  } else {
    const int fd = connect_to_peer(options.peer);
    options.peer.tcp ? blast_blocks(fd, options.bytes) : blast_datagrams(fd, options.bytes);
    close(fd);
  }
  std::puts(R"({"mode": "blast"})");
}

void run_socket_sink(const SocketBenchOptions& options) {
  const int fd = wait_for_peer(options.peer);
  const auto window_ns = static_cast<uint64_t>(options.seconds * 1e9);
  Rate rate;
  if (options.peer.tcp) {
    sink_blocks(fd, window_ns, rate);
  } else if (options.segments == 1) {
    sink_datagrams(fd, window_ns, rate);
  } else {
    const int on = 1;
    if (setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on)) fail_with_errno("UDP_GRO");
    sink_runs(fd, window_ns, options, rate);
  }
  close(fd);
  const double seconds = rate.seconds() > 0 ? rate.seconds() : 1;
  const double payload = options.peer.tcp ? static_cast<double>(rate.bytes)
                                          : static_cast<double>(rate.datagrams) * static_cast<double>(options.payload);
  std::printf(R"({"mode": "sink", "seconds": %.3f, "mpps": %.4f, "gbps": %.3f})"
              "\n",
              rate.seconds(), static_cast<double>(rate.datagrams) / seconds / 1e6, payload * 8 / seconds / 1e9);
}

}  // namespace uroce::limits

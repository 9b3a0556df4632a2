// SPDX-License-Identifier: BSD-2-Clause
// xsk_bench ping and pong: the round trip of one frame between two AF_XDP sockets. Lower bound for ib_send_lat,
// ib_write_lat and, with different lengths for request and reply, ib_read_lat. With two frames each way it is closer to
// ib_send_lat, which goes on when the SEND of the peer and the ACK of its own have come.
#include <cstdio>

#include "bench/limits_src/frame.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/xsk.h"
#include "bench/limits_src/xsk_bench.h"

namespace uroce::limits {
namespace {

constexpr uint64_t kLostAfterNs = 1'000'000'000;  // longer than a peer waits for its CPU on a busy machine
constexpr uint32_t kSpinsPerClockRead = 4096;
constexpr uint32_t kMaxLost = 3;

// Returns once the reply to `sequence` is in, or false after kLostAfterNs.
bool await_reply(Xsk& xsk, uint32_t sequence, uint64_t sent_ns) {
  bool arrived = false;
  for (uint32_t spins = 1; !arrived; ++spins) {
    xsk.receive(16, [&](const uint8_t* frame, uint32_t bytes) {
      arrived |= is_our_frame(frame, bytes) && get_stamp(frame).index == sequence;
    });
    if (spins % kSpinsPerClockRead == 0 && now_ns() - sent_ns > kLostAfterNs) return false;
  }
  return true;
}

}  // namespace

void run_ping(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev, .receive = true, .generic = options.generic, .frames = options.frames});
  xsk.prepare_tx(options.send_bytes);
  const uint32_t warm_up = options.iterations / 10;
  std::vector<uint64_t> round_trips;
  round_trips.reserve(options.iterations);
  uint32_t lost = 0;
  for (uint32_t i = 0; i < warm_up + options.iterations && lost < kMaxLost && !stop_requested(); ++i) {
    const uint64_t start = now_ns();
    const uint32_t first = i * options.turn;
    xsk.queue(options.turn, start, first);
    xsk.kick();
    if (!await_reply(xsk, first + options.turn - 1, start)) {
      ++lost;
    } else if (i >= warm_up) {
      round_trips.push_back(now_ns() - start);
    }
    xsk.reap();
  }
  std::printf(R"({"mode": "ping", "frame_bytes": %u, "lost": %u, )", options.send_bytes, lost);
  Latency(std::move(round_trips)).print_json(stdout);
  std::puts("}");
}

void run_pong(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev, .receive = true, .generic = options.generic, .frames = options.frames});
  xsk.prepare_tx(options.send_bytes);
  announce_ready();
  while (!stop_requested()) {
    bool reply = false;
    Stamp stamp = {};
    xsk.receive(16, [&](const uint8_t* frame, uint32_t bytes) {
      if (!is_our_frame(frame, bytes)) return;
      stamp = get_stamp(frame);
      reply = stamp.index % options.turn == options.turn - 1;
    });
    if (!reply) continue;
    xsk.queue(options.turn, stamp.time_ns, stamp.index - (options.turn - 1));
    xsk.kick();
    xsk.reap();
  }
  std::puts(R"({"mode": "pong"})");
}

}  // namespace uroce::limits

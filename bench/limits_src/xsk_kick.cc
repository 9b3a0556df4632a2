// SPDX-License-Identifier: BSD-2-Clause
// xsk_bench kick and arrivals: what one sendto() on the TX ring costs its caller, by the number of descriptors queued,
// and when each frame of the call gets to the receiver. It tells whether an extra packet (an ACK, say) is cheaper as
// part of a call that is made anyway, and whether a long call holds its first frames back.
#include <cstdio>
#include <map>

#include "bench/limits_src/frame.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/xsk.h"
#include "bench/limits_src/xsk_bench.h"

namespace uroce::limits {
namespace {

constexpr uint64_t kGapNs = 20'000;  // between calls: the receiver has seen the last frame of the call before

void wait_ns(uint64_t duration) {
  for (const uint64_t start = now_ns(); now_ns() - start < duration;) {
  }
}

Latency time_kicks(Xsk& xsk, uint32_t burst, uint32_t iterations) {
  const uint32_t warm_up = iterations / 10;
  std::vector<uint64_t> durations;
  for (uint32_t i = 0; i < warm_up + iterations && !stop_requested(); ++i) {
    wait_ns(kGapNs);
    while (xsk.reap() != 0) xsk.kick();  // a call for more than the kernel's 32 leaves a rest
    if (burst != 0) xsk.queue(burst, now_ns(), 0);
    const uint64_t start = now_ns();
    xsk.kick();
    const uint64_t end = now_ns();
    if (i >= warm_up) durations.push_back(end - start);
  }
  return Latency(std::move(durations));
}

}  // namespace

void run_kick(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev, .generic = options.generic, .frames = options.frames});
  xsk.prepare_tx(options.send_bytes);
  std::printf(R"({"mode": "kick", "frame_bytes": %u, "bursts": [)", options.send_bytes);
  const char* separator = "";
  for (uint32_t burst : options.bursts) {
    std::printf(R"(%s{"descriptors": %u, )", separator, burst);
    time_kicks(xsk, burst, options.iterations).print_json(stdout);
    std::printf("}");
    separator = ", ";
  }
  std::puts("]}");
}

void run_arrivals(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev, .receive = true, .generic = options.generic, .frames = options.frames});
  // Burst size, position -> time from just before the call. One chunk per look: an arrival is stamped as it is seen.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint64_t>> arrivals;
  announce_ready();
  while (!stop_requested()) {
    xsk.receive(1, [&](const uint8_t* frame, uint32_t bytes) {
      const uint64_t now = now_ns();
      if (!is_our_frame(frame, bytes)) return;
      const Stamp stamp = get_stamp(frame);
      arrivals[{stamp.count, stamp.index}].push_back(now - stamp.time_ns);
    });
  }
  std::printf(R"({"mode": "arrivals", "frames": [)");
  const char* separator = "";
  for (auto& [position, offsets] : arrivals) {
    std::printf(R"(%s{"descriptors": %u, "index": %u, )", separator, position.first, position.second);
    Latency(std::move(offsets)).print_json(stdout);
    std::printf("}");
    separator = ", ";
  }
  std::puts("]}");
}

}  // namespace uroce::limits

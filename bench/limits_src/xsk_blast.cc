// SPDX-License-Identifier: BSD-2-Clause
// xsk_bench blast and sink: frames in one direction as fast as the kernel takes them. Upper bound for ib_write_bw,
// ib_send_bw and ib_read_bw: nobody copies a payload, computes an ICRC or sends an ACK.
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "bench/limits_src/frame.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/xsk.h"
#include "bench/limits_src/xsk_bench.h"

namespace uroce::limits {
namespace {

constexpr uint32_t kLargestSingleRx = Xsk::kChunkBytes - XDP_PACKET_HEADROOM;

bool needs_multi_buffer(uint32_t frame_bytes) {
  return frame_bytes > kLargestSingleRx;
}

bool is_retry(int error) {
  return error == EAGAIN || error == EBUSY || error == ENOBUFS;
}

}  // namespace

void run_blast(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev,
           .multi_buffer = needs_multi_buffer(options.send_bytes),
           .generic = options.generic,
           .frames = options.frames});
  xsk.prepare_tx(options.send_bytes);
  uint64_t queued = 0, calls = 0;
  const uint64_t start = now_ns();
  while (!stop_requested()) {
    if (xsk.queue(options.batch, 0, static_cast<uint32_t>(queued))) queued += options.batch;
    const int error = xsk.kick();
    if (error != 0 && !is_retry(error)) throw std::system_error(error, std::generic_category(), "sendto");
    ++calls;
    xsk.reap();
  }
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  std::printf(R"({"mode": "blast", "frame_bytes": %u, "seconds": %.3f, "mpps": %.4f, "frames_per_call": %.1f})"
              "\n",
              options.send_bytes, seconds, static_cast<double>(queued) / seconds / 1e6,
              static_cast<double>(queued) / static_cast<double>(calls));
}

void run_sink(const XskBenchOptions& options) {
  Xsk xsk({.netdev = options.netdev,
           .receive = true,
           .multi_buffer = needs_multi_buffer(options.send_bytes),
           .generic = options.generic,
           .frames = options.frames});
  announce_ready();
  const auto window_ns = static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t frames = 0, first_ns = 0, last_ns = 0;
  while (!stop_requested() && last_ns - first_ns < window_ns) {
    uint32_t received = 0;
    xsk.receive(64, [&](const uint8_t* frame, uint32_t bytes) {
      received += bytes == options.send_bytes && is_our_frame(frame, bytes);
    });
    if (received == 0) continue;
    last_ns = now_ns();
    if (first_ns == 0) {
      first_ns = last_ns;  // the window opens after the first batch
    } else {
      frames += received;
    }
  }
  const double seconds = static_cast<double>(last_ns - first_ns) / 1e9;
  const double per_second = seconds > 0 ? static_cast<double>(frames) / seconds : 0;
  const xdp_statistics statistics = xsk.statistics();
  std::printf(R"({"mode": "sink", "frame_bytes": %u, "seconds": %.3f, "mpps": %.4f, "gbps": %.3f, "dropped": %llu})"
              "\n",
              options.send_bytes, seconds, per_second / 1e6, per_second * options.payload * 8 / 1e9,
              static_cast<unsigned long long>(statistics.rx_dropped + statistics.rx_ring_full +
                                              statistics.rx_fill_ring_empty_descs));
}

}  // namespace uroce::limits

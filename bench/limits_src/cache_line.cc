// SPDX-License-Identifier: BSD-2-Clause
// cache_line: how long a cache line takes from one CPU to the other, in ns. Run by bench/limits around each
// measurement. A host that moves virtual CPUs between core complexes changes it several times over, and with it every
// ping-pong.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"

namespace {

using uroce::limits::now_ns;
using uroce::limits::pin_to_cpu;

constexpr uint32_t kBatches = 201;
constexpr uint32_t kRoundTripsPerBatch = 50;
constexpr uint32_t kRoundTrips = kBatches * kRoundTripsPerBatch;

alignas(64) std::atomic<uint32_t> line{0};  // odd: this side has written, even: the other has answered

void answer(int cpu) {
  pin_to_cpu(cpu);
  for (uint32_t i = 0; i < kRoundTrips; ++i) {
    while (line.load(std::memory_order_acquire) != 2 * i + 1) {
    }
    line.store(2 * i + 2, std::memory_order_release);
  }
}

double median_hand_over_ns() {
  std::vector<double> batches;
  for (uint32_t i = 0; i < kRoundTrips;) {
    const uint64_t start = now_ns();
    for (uint32_t j = 0; j < kRoundTripsPerBatch; ++j, ++i) {
      line.store(2 * i + 1, std::memory_order_release);
      while (line.load(std::memory_order_acquire) != 2 * i + 2) {
      }
    }
    batches.push_back(static_cast<double>(now_ns() - start) / (2 * kRoundTripsPerBatch));
  }
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return batches[kBatches / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: cache_line CPU CPU\n", stderr);
    return 2;
  }
  try {
    pin_to_cpu(std::atoi(argv[1]));
    std::thread peer(answer, std::atoi(argv[2]));
    std::printf(R"({"hand_over_ns": %.1f})"
                "\n",
                median_hand_over_ns());
    peer.join();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cache_line: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: BSD-2-Clause
#include "bench/messages_src/split.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace uroce::messages {

double cycles_per_nanosecond() {
  static const double ratio = [] {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const uint64_t first = cycles();
    Clock::time_point end;
    do end = Clock::now();
    while (end - begin < std::chrono::milliseconds(20));
    return static_cast<double>(cycles() - first) / std::chrono::duration<double, std::nano>(end - begin).count();
  }();
  return ratio;
}

uint64_t cycles_of_clock() {
  static const uint64_t median = [] {
    std::array<uint64_t, 1001> samples;
    for (uint64_t& sample : samples) {
      const uint64_t begin = cycles();
      sample = cycles() - begin;
    }
    std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
    return samples[samples.size() / 2];
  }();
  return median;
}

}  // namespace uroce::messages

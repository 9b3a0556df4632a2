// SPDX-License-Identifier: BSD-2-Clause
// Time stamps and the summary of many short durations. Used by every mode of xsk_bench and socket_bench.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <time.h>
#include <vector>

namespace uroce::limits {

// One clock for all processes of the machine, network namespaces included.
inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// Median (what perftest calls t_typical), extremes and tail of a set of durations in nanoseconds.
class Latency {
 public:
  explicit Latency(std::vector<uint64_t> samples_ns) : samples_(std::move(samples_ns)) {
    std::sort(samples_.begin(), samples_.end());
  }
  double quantile_us(double q) const {
    if (samples_.empty()) return 0;
    return static_cast<double>(samples_[static_cast<size_t>(q * static_cast<double>(samples_.size() - 1))]) / 1e3;
  }
  // Writes the members of a JSON object, without the braces.
  void print_json(std::FILE* out) const {
    std::fprintf(out, R"("samples": %zu, "min_us": %.3f, "median_us": %.3f, "p99_us": %.3f, "max_us": %.3f)",
                 samples_.size(), quantile_us(0), quantile_us(0.5), quantile_us(0.99), quantile_us(1));
  }

 private:
  std::vector<uint64_t> samples_;
};

}  // namespace uroce::limits

// SPDX-License-Identifier: BSD-2-Clause
// How the cost of something grows, in CPU time of this thread: as a ratio, never as a time.
#pragma once

#include <algorithm>
#include <ctime>

namespace uroce::cm::test {

// CPU time of run(n), the least of several times. `run` makes what it needs and calls what it is given around what
// counts.
template <class Run>
double cost(Run&& run, int n) {
  double least = 1e9;
  for (int times = 0; times < 5; ++times) {
    double spent = 0;
    run(n, [&spent](auto&& what) {
      const auto now = [] {
        timespec at{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
        return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
      };
      const double start = now();
      what();
      spent += now() - start;
    });
    least = std::min(least, spent);
  }
  return least;
}

// How many times more it costs for four times as many: 4, or little more; where each looks at all others, 16.
template <class Run>
double growth(Run&& run, int n) {
  return cost(run, 4 * n) / cost(run, n);
}
inline constexpr double kMostGrowth = 9;

}  // namespace uroce::cm::test

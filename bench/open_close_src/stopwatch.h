// SPDX-License-Identifier: BSD-2-Clause
// Times of steps, printed one a line: milliseconds, a tab, the name.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace uroce::open_close {

template <class Step>
auto timed(const std::string& name, Step&& step) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = step();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  std::printf("%.3f\t%s\n", time.count(), name.c_str());
  return result;
}

}  // namespace uroce::open_close

// SPDX-License-Identifier: BSD-2-Clause
// Time as the transport sees it: nanoseconds handed in from outside, never read here (architecture.md, decision 3).
// The engine passes CLOCK_MONOTONIC, the simulator its virtual clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace uroce {

using Duration = std::chrono::nanoseconds;

struct EngineClock {  // a tag; deliberately without now()
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<EngineClock, Duration>;
  static constexpr bool is_steady = true;
};

using Time = EngineClock::time_point;

inline constexpr Time kNever = Time::max();

}  // namespace uroce

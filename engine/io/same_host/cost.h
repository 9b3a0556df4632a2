// SPDX-License-Identifier: BSD-2-Clause
// What another process makes it cost to send to it. To send wakes all that wait at the other end, 0.1 us each, and who
// is there may make millions of them wait. Nothing else goes on meanwhile here.
//
// Measured by the processor time of this thread, as others may have had the processor meanwhile. But a virtual
// machine's processor may be taken away at any time, which counts as well: so one call is never too much.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/clock.h"
#include "base/time.h"

namespace uroce::io {

class Cost {
 public:
  // Does `send`, for so many packets or wake-ups, and returns how much longer it took than is fair.
  template <class Send>
  Duration account_for(size_t count, Send&& send) {
    const Duration begin = thread_time();
    send();
    const Duration more = thread_time() - begin - kFair * static_cast<int64_t>(count);
    debt_ = std::clamp(debt_ + std::min(more, kMostOfOne), Duration{}, kMostOfOne + kMost);
    return std::max(more, Duration{});
  }
  // Of late.
  bool is_too_much() const { return debt_ > kMost; }

 private:
  // Of one packet or wake-up; one thread that sleeps is woken in a tenth of that.
  static constexpr Duration kFair = std::chrono::microseconds(50);
  // By how much more all of them may take, and how much of that one call counts.
  static constexpr Duration kMost = std::chrono::milliseconds(1), kMostOfOne = kMost * 2 / 3;

  Duration debt_{};
};

}  // namespace uroce::io

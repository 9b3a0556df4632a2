// SPDX-License-Identifier: BSD-2-Clause
// What another process makes it cost to send to it. To send wakes all that wait at the other end, 0.06 us each and
// more, and who is there may make millions of them wait. Nothing else goes on meanwhile here.
//
// Measured by the clock, unless others have had the processor meanwhile: then by the processor time of this thread, in
// which the kernel may not count what it does in interrupts. A virtual machine's processor may be taken away at any
// time, which counts as well: so one call is not too much, unless it has taken longer than that ever does.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/time.h"

namespace uroce::io {

class Cost {
 public:
  // Does `send`, for so many packets or wake-ups, and returns how much longer it took than is fair.
  template <class Send>
  Duration account_for(size_t count, Send&& send) {
    const Mark begin;
    send();
    const Duration more = begin.since() - kFair * static_cast<int64_t>(count);
    const Duration counts = more > kNoHiccup ? kMost + kMostOfOne : std::min(more, kMostOfOne);
    debt_ = std::clamp(debt_ + counts, Duration{}, kMost + kMostOfOne);
    return std::max(more, Duration{});
  }
  // Of late.
  bool is_too_much() const { return debt_ > kMost; }

 private:
  // Of one packet or wake-up; one thread that sleeps is woken in a tenth of that.
  static constexpr Duration kFair = std::chrono::microseconds(50);
  // By how much more all of them may take, and how much of that one call counts.
  static constexpr Duration kMost = std::chrono::milliseconds(1), kMostOfOne = kMost * 2 / 3;
  // For so long nobody takes a virtual machine's processor away.
  static constexpr Duration kNoHiccup = std::chrono::milliseconds(100);

  class Mark {
   public:
    Duration since() const {
      const Mark end;
      return end.others_ == others_ ? end.clock_ - clock_ : end.thread_ - thread_;
    }

   private:
    static long involuntary_switches() {
      rusage usage{};
      getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_nivcsw;
    }
    Time clock_ = monotonic_now();
    Duration thread_ = thread_time();
    long others_ = involuntary_switches();
  };

  Duration debt_{};
};

}  // namespace uroce::io

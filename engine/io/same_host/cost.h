// SPDX-License-Identifier: BSD-2-Clause
// What another process makes it cost to send to it. To send wakes all that wait at the other end, 0.06 us each and
// more, and who is there may make millions of them wait. Nothing else goes on meanwhile here.
//
// Measured by the clock, unless others have had the processor meanwhile: then by the processor time of this thread, in
// which the kernel may not count what it does in interrupts. A virtual machine's processor may be taken away at any
// time, which counts as well: so no call is too much, unless it has taken longer than that ever does.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/time.h"

namespace uroce::io {

// What has taken too long, in all. One part in `kPart` of the time pays it back, whatever else is sent meanwhile: cheap
// calls are as many as the other side likes.
template <int kPart>
class Debt {
 public:
  Duration left(Time now) const { return std::max(left_ - (now - at_) / kPart, Duration{}); }
  void add(Duration more, Time now) {
    left_ = left(now) + more;
    at_ = now;
  }

 private:
  Duration left_{};
  Time at_{};
};

// Of all together, as one user may have hundreds of ranges of QP numbers. When that is too much, those that have had a
// part in it are sent nothing until it is paid back; all others are.
class Cost {
 public:
  // A hundred times as slow, so that hundreds of them in turn gain nothing.
  using OfOne = Debt<5'000>;
  explicit Cost(Time (*now)()) : now_(now) {}

  // Does `send` to this one, for so many packets or wake-ups.
  template <class Send>
  void account_for(OfOne& one, size_t count, Send&& send) {
    const Mark begin;
    send();
    const Duration more = begin.since() - kFair * static_cast<int64_t>(count);
    if (more <= Duration::zero()) return;
    one.add(more, now_());
    all_.add(more, now_());
  }
  // Of late.
  bool is_too_much(const OfOne& one) const {
    const Time now = now_();
    return all_.left(now) > kMost && one.left(now) > kMostOfOne;
  }

 private:
  // Of one packet or wake-up; one thread that sleeps is woken in a tenth of that.
  static constexpr Duration kFair = std::chrono::microseconds(50);
  // By how much more all of them may take: for so long nobody takes a virtual machine's processor away.
  static constexpr Duration kMost = std::chrono::milliseconds(100);
  // Who has taken less is not the one that it is about.
  static constexpr Duration kMostOfOne = std::chrono::milliseconds(1);

  class Mark {
   public:
    Duration since() const {
      const Duration clock = monotonic_now() - clock_, thread = thread_time() - thread_;
      return involuntary_switches() == others_ ? clock : thread;
    }

   private:
    static long involuntary_switches() {
      rusage usage{};
      getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_nivcsw;
    }
    long others_ = involuntary_switches();  // before the clocks, and at the end behind them
    Time clock_ = monotonic_now();
    Duration thread_ = thread_time();
  };

  Time (*const now_)();
  Debt<50> all_;
};

}  // namespace uroce::io

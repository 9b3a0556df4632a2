// SPDX-License-Identifier: BSD-2-Clause
// How many probes (loss_recovery.h) may go to one destination. When a peer or a switch pauses, those of all QPs to it
// are due at once, and each one more makes the pause longer. QPs to the same destination share a budget: a handful of
// them never meet its bound. A token bucket; it knows no clock.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace uroce::transport {

class ProbeBudget {
 public:
  static constexpr int kBurst = 32;                                     // probes at once
  static constexpr Duration kInterval = std::chrono::microseconds(25);  // and one more in each

  // Whether a probe may be sent now; counts it.
  bool take(Time now) {
    const Time full_at = std::max(full_at_, now) + kInterval;
    if (full_at > now + kBurst * kInterval) return false;
    full_at_ = full_at;
    return true;
  }

 private:
  Time full_at_{};  // when all of kBurst may be sent again
};

}  // namespace uroce::transport

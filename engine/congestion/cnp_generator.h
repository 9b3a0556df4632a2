// SPDX-License-Identifier: BSD-2-Clause
// The notification point of one QP: which congestion-marked packets are answered with a CNP. Asked by the receiving
// side of a QP for every packet that carries CE, has passed its checks (ICRC included) and is not itself a CNP;
// counters are the caller's.
//
// At most one CNP in kMinInterval, at once and not at the interval's end. 4 us is what ConnectX uses (2 or 4 us by
// firmware, wire.md "ConnectX and DCQCN") and its REDUCE_PERIOD: a peer could not make use of more. Far fewer would not
// do: the peer's alpha decays every microsecond, and CNPs that come every 50 us, as in the DCQCN paper with its alpha
// period of 55 us, would leave it at 5/1024: a cut of 0.2 %, where CNPs every 4 us hold it at 205/1024, a cut of 10 %.
// The cost is bounded: never more CNPs than marked packets, and never more than 250,000 a second.
#pragma once

#include "base/time.h"

namespace uroce::congestion {

class CnpGenerator {
 public:
  static constexpr Duration kMinInterval = std::chrono::microseconds(4);

  explicit CnpGenerator(Duration min_interval = kMinInterval) : min_interval_(min_interval) {}

  // A packet with CE came. True: send a CNP now.
  bool on_ce(Time now) {
    if (now < next_) return false;
    next_ = now + min_interval_;
    return true;
  }

 private:
  Duration min_interval_;
  Time next_ = Time::min();
};

}  // namespace uroce::congestion

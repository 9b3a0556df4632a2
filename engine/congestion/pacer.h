// SPDX-License-Identifier: BSD-2-Clause
// When packets to one destination may leave under a rate limit: who asked first goes first. Asked and told by
// Controller.
//
// The pacer counts how much could have left at the rate, whatever the rate was when. A packet takes a place, which is
// the sum of what has taken one before it, and may leave when the count is there; up to kBurst earlier, so that a
// caller that wakes up late by that much loses nothing. In any time t no more than rate * (t + kBurst) plus one packet
// leave.
//
// A sender that is refused keeps its place (Turn). So each is woken when its own turn has come and not with all others,
// and none overtakes the others (Carousel's earliest departure times, docs/congestion.md). A place that is never used
// costs the time of one packet.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "engine/congestion/rate.h"

namespace uroce::congestion {

// One sender's place; each QP has one.
struct Turn {
  bool taken = false;
  uint32_t bytes = 0;  // that were counted for it
  uint64_t place = 0;
};

class Pacer {
 public:
  static constexpr Duration kBurst = std::chrono::microseconds(50);

  // A limit begins: whoever still has a place from an earlier one may send.
  void begin(Rate rate, Time now) {
    rate_ = rate;
    counted_at_ = now;
    count_ = taken_;
  }
  // `rate` is not 0 and not unlimited.
  void set_rate(Rate rate, Time now) {
    if (rate == rate_ && now - counted_at_ < kRecount) return;
    count_ = counted(now);
    counted_at_ = std::max(counted_at_, now);
    rate_ = rate;
  }

  // Whether a packet of this sender may leave now; if not, it has a place from now on, for a packet of `bytes`.
  bool may_send(Turn& turn, uint32_t bytes, Time now) {
    const uint64_t reached = counted(now) + burst();
    if (turn.taken) return !before(reached, turn.place);
    if (!before(reached, taken_)) return true;
    turn = {true, bytes, taken_};
    taken_ += units(bytes);
    return false;
  }

  // A sender that may not send before then.
  Time resume_at(const Turn& turn) const {
    if (!turn.taken) return Time::min();
    const uint64_t at = turn.place - burst();
    if (!before(count_, at)) return counted_at_;
    const uint64_t wait = scaled(at - count_, kUnitNanoseconds, rate_.bits_per_second());
    return wait < static_cast<uint64_t>((kNever - counted_at_).count()) ? counted_at_ + Duration(wait + 1) : kNever;
  }

  void on_sent(Turn& turn, uint32_t bytes, Time now) {
    if (const uint64_t reached = counted(now); !turn.taken && before(taken_, reached)) taken_ = reached;
    taken_ += units(bytes) - units(turn.taken ? turn.bytes : 0);
    turn = {};
  }

 private:
  static constexpr uint64_t kUnits = 1000;  // in a bit: 1 Mb/s is one of them in a nanosecond
  static constexpr uint64_t kUnitNanoseconds = 1'000'000'000 / kUnits;

  static constexpr Duration kRecount = std::chrono::milliseconds(100);

  static constexpr uint64_t units(uint32_t bytes) { return uint64_t{bytes} * 8 * kUnits; }
  // Counts wrap.
  static constexpr bool before(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b) < 0; }
  uint64_t counted_in(Duration time) const {
    constexpr uint64_t kMost = uint64_t{1} << 61;  // far from where counts would wrap
    return std::min(scaled(rate_.bits_per_second(), static_cast<uint64_t>(time.count()), kUnitNanoseconds), kMost);
  }
  uint64_t burst() const { return counted_in(kBurst); }
  uint64_t counted(Time now) const { return now > counted_at_ ? count_ + counted_in(now - counted_at_) : count_; }

  Rate rate_ = Rate::mbit(1);
  Time counted_at_{};
  uint64_t count_ = 0;  // that could have left until counted_at_
  uint64_t taken_ = 0;  // the next place
};

}  // namespace uroce::congestion

// When the next packet may leave under a rate limit. Asked and told by CongestionControl.
//
// Every packet books the time that it takes at the current rate, and the next one may leave up to kBurst before the
// booked time is over. So in any time t no more than rate * (t + kBurst) plus one packet leave, and a caller that wakes
// up late by kBurst or less loses nothing. In bytes that is 62 kB at 10 Gb/s and nothing but the one packet at 1 Mb/s.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/time.h"
#include "engine/congestion/rate.h"

namespace uroce::congestion {

class Pacer {
 public:
  static constexpr Duration kBurst = std::chrono::microseconds(50);

  // A packet may leave from then on.
  Time resume_at() const { return booked_until_ - kBurst; }

  // What is booked gets shorter with a higher rate: else one packet at the floor would hold the QP up for 33 ms though
  // the rate is back within one. It does not get longer with a lower rate, which is for the packets to come.
  void set_rate(Rate rate, Time now) {
    if (rate > rate_ && booked_until_ > now) {
      const auto booked = static_cast<uint64_t>((booked_until_ - now).count());
      booked_until_ =
          now + Duration(static_cast<int64_t>(scaled(booked, rate_.bits_per_second(), rate.bits_per_second())));
    }
    rate_ = rate;
  }

  void on_sent(uint32_t bytes, Time now) {
    const Time begin = std::max(booked_until_, now);
    booked_until_ = begin + std::min(rate_.time_for(bytes), kNever - begin);
  }

 private:
  Rate rate_ = Rate::unlimited();
  Time booked_until_{};
};

}  // namespace uroce::congestion

// SPDX-License-Identifier: BSD-2-Clause
// Whether a program that polls channels waits for one of them alone, and leaves the events of the others where they are
// (libvalkey's valkeyRdmaReadZC() does so). It gives itself away by coming back to the channel that it has asked in
// vain, while nobody has taken any of the events that there were. One object for each thread.
#pragma once

#include <cstdint>
#include <utility>

#include "base/time.h"

namespace uroce::verbs {

class SingleWait {
 public:
  // Who is away for so long has been asleep, and has not only looked at another channel.
  static constexpr Duration kAsleep = std::chrono::microseconds(20);

  // It has asked `channel` in vain, and goes. Of all channels there are `pending` events, and `taken` have been taken.
  void asked(const void* channel, int pending, uint32_t taken, Time now) {
    channel_ = pending > 0 ? channel : nullptr;
    taken_ = taken;
    since_ = now;
  }
  // It comes to `channel`. True: it has waited for that one alone, and for another one the last time: it may be the
  // only one of its program, and the events of others nobody's.
  bool ends(const void* channel, uint32_t taken, Time now) {
    const bool alone = channel_ == channel && taken_ == taken && now - since_ >= kAsleep;
    channel_ = nullptr;
    return alone && std::exchange(last_, channel) != channel;
  }

 private:
  const void* channel_ = nullptr;
  uint32_t taken_ = 0;
  Time since_{};
  const void* last_ = nullptr;  // that was waited for alone
};

}  // namespace uroce::verbs

// SPDX-License-Identifier: BSD-2-Clause
// Whether a program that polls channels waits for one of them alone, and leaves the events of the others where they are
// (libvalkey's valkeyRdmaReadZC() does so). It gives itself away by coming back to the channel that it has asked in
// vain, while nobody has taken any of the events that there were. One object for each thread.
#pragma once

#include <cstdint>

namespace uroce::verbs {

class SingleWait {
 public:
  // It has asked `channel` in vain, and goes. Of all channels there are `pending` events, and `taken` have been taken.
  void asked(const void* channel, int pending, uint32_t taken) {
    channel_ = pending > 0 ? channel : nullptr;
    taken_ = taken;
  }
  // It comes to `channel`. True: it has waited for that one alone.
  bool ends(const void* channel, uint32_t taken) {
    const bool alone = channel_ == channel && taken_ == taken;
    channel_ = nullptr;
    return alone;
  }

 private:
  const void* channel_ = nullptr;
  uint32_t taken_ = 0;
};

}  // namespace uroce::verbs

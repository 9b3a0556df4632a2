// SPDX-License-Identifier: BSD-2-Clause
// When a way of packets is looked into that has had none lately and whose looks are system calls, beside one that is
// looked into for next to nothing: at every sixteenth look, so that neither keeps the other one waiting, but not before
// a pause is over. Sixteen looks that find nothing take a spinning program less time than one system call, and a packet
// that comes meanwhile by the other way waits for its end.
#pragma once

#include <cstdint>

#include "engine/base/clock.h"

namespace uroce::io {

class QuietTurns {
 public:
  static constexpr uint32_t kLooks = 16;
  static constexpr Duration kPause = std::chrono::microseconds(50);

  explicit QuietTurns(Time (*now)() = monotonic_now) : now_(now) {}

  // Asked before each look.
  bool comes() {
    if (looks_++ % kLooks != 0) return false;
    const Time now = now_();
    if (last_ != kNever && now - last_ < kPause) return false;
    last_ = now;
    return true;
  }

  // The next look is its turn.
  void reset() {
    looks_ = 0;
    last_ = kNever;
  }

 private:
  Time (*now_)();
  Time last_ = kNever;
  uint32_t looks_ = 0;
};

}  // namespace uroce::io

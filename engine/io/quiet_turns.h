// SPDX-License-Identifier: BSD-2-Clause
// When a way of packets is looked into whose looks may be system calls, beside one that is looked into for next to
// nothing: at every sixteenth look, so that neither keeps the other one waiting. Where nothing has come by it for a
// millisecond, not before a pause is over either: sixteen looks that find nothing take a spinning program less time
// than one system call, and a packet that comes meanwhile by the other way waits for its end.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace uroce::io {

class QuietTurns {
 public:
  static constexpr uint32_t kLooks = 16;
  static constexpr Duration kQuiet = std::chrono::milliseconds(1);
  static constexpr Duration kPause = std::chrono::microseconds(50);

  explicit QuietTurns(Time (*now)() = monotonic_now) : now_(now) {}

  // Asked before each look, whatever is looked into.
  bool comes() {
    if (looks_++ % kLooks != 0) return false;
    asked_ = now_();
    quiet_ = found_ == kNever || asked_ - found_ >= kQuiet;
    if (quiet_ && last_ != kNever && asked_ - last_ < kPause) return false;
    last_ = asked_;
    return true;
  }

  // When its turn came, nothing had come by it for a while.
  bool quiet() const { return quiet_; }

  // The way had packets.
  void found() { found_ = asked_; }

  // The next look is its turn.
  void reset() {
    looks_ = 0;
    last_ = kNever;
  }

 private:
  Time (*now_)();
  Time asked_ = kNever, last_ = kNever, found_ = kNever;
  uint32_t looks_ = 0;
  bool quiet_ = true;
};

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// Whether a program that polls channels will come back without a wait: while events of other channels are there, whose
// descriptors are readable. Then it need not be made ready to sleep for each of its channels in turn, which takes
// system calls and keeps what it posts from leaving together. But they may be the events of another thread, or
// nobody's. So the last times tell. One object for each thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace uroce::verbs {

class ReturnHabit {
 public:
  // Who takes that long has waited, or has had so much to do that the difference does not matter.
  static constexpr Duration kSoon = std::chrono::microseconds(100);

  // There are events for others. True: the thread is expected to take one of them, and is not made ready to sleep.
  bool expects(Time now) {
    if (left_out_ > 0) {
      --left_out_;
      return false;
    }
    since_ = now;
    return true;
  }
  // It has taken one without a wait in between, as far as it is known.
  void taken(Time now) {
    if (since_ == Time{}) return;
    if (now - since_ < kSoon) {
      doubt_ = 0;
      since_ = {};
    } else {
      has_not_come();
    }
  }
  // It has asked for one, and there is none; or it was away for long.
  void has_not_come() {
    if (since_ == Time{}) return;
    since_ = {};
    left_out_ = kLeftOut << doubt_;
    doubt_ = std::min(doubt_ + 1, kMostDoubt);
  }

 private:
  static constexpr uint32_t kLeftOut = 16;
  static constexpr int kMostDoubt = 6;

  Time since_{};  // when it was expected
  uint32_t left_out_ = 0;
  int doubt_ = 0;
};

}  // namespace uroce::verbs

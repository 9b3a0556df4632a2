// SPDX-License-Identifier: BSD-2-Clause
// Whether a thread that waits should look for packets for a moment before it sleeps. To sleep and to be woken takes
// longer than the answer of a peer that is awake: a wake-up of an idle CPU 5 to 30 us, and on both sides. So it is
// worth it while waits end soon. As with halt polling of virtual machines, the last waits tell. Where several in a row
// last so long that the thread had better slept, many are left out, and then some tried again: a peer that sleeps, too,
// is late for that alone, and two sides that look at the same time go on with it. One object for each thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/time.h"

namespace uroce::engine {

class SpinHabit {
 public:
  // A peer that has to be woken first answers in that time.
  static constexpr Duration kLongest = std::chrono::microseconds(100);
  // Waits that end so soon, with a sleep and a wake-up in them, would have ended while the thread looked.
  static constexpr Duration kSoon = std::chrono::microseconds(400);
  // What a sleep would have cost.
  static constexpr Duration kWorthIt = std::chrono::microseconds(40);

  // A wait begins: for how long to look.
  Duration begin(Time now) {
    began_ = now;
    looked_ = false;
    if (soon_ < kWaitsThatTell) return Duration{};
    if (left_out_ > 0) {
      --left_out_;
      return Duration{};
    }
    looked_ = true;
    return kLongest;
  }
  // As begin(), of a thread whose queue is empty: it may wait next, or have something to send first, as Valkey has its
  // answers. Then looking would only keep them back, and nothing comes before they have left.
  Duration begin_unsure(Time now) {
    unsure_ = false;
    if (sends_first_ > 0) {
      --sends_first_;
      return Duration{};
    }
    const Duration time = begin(now);
    unsure_ = time > Duration{};
    return time;
  }
  // It has sent something.
  void posted() {
    if (!unsure_) return;
    unsure_ = false;
    began_ = {};
    sends_first_ = kTries << send_doubt_;
    send_doubt_ = std::min(send_doubt_ + 1, kMostSendDoubt);
  }
  // It has ended with what it was for.
  void end(Time now) {
    if (std::exchange(unsure_, false)) send_doubt_ = 0;
    if (began_ == Time{}) return;
    const Duration took = now - began_;
    began_ = {};
    soon_ = took < kSoon ? std::min(soon_ + 1, kWaitsThatTell) : 0;
    if (!looked_) return;
    if (took <= kWorthIt) {
      doubt_ = 0;
      tries_ = kTries;
    } else if (--tries_ == 0) {
      doubt_ = std::min(doubt_ + 1, kMostDoubt);
      left_out_ = kTries << doubt_;
      tries_ = kTries;
    }
  }

 private:
  static constexpr int kWaitsThatTell = 2;
  static constexpr uint32_t kTries = 8;
  static constexpr int kMostDoubt = 4;  // one wait in 17 is not left out
  static constexpr int kMostSendDoubt = 7;

  Time began_{};
  int soon_ = 0;  // waits in a row that have ended soon
  uint32_t tries_ = kTries, left_out_ = 0;
  int doubt_ = 0;
  bool looked_ = false;
  bool unsure_ = false;       // begin_unsure() was the last
  uint32_t sends_first_ = 0;  // so many times it is taken to
  int send_doubt_ = 0;
};

[[gnu::tls_model("initial-exec")]] constinit inline thread_local SpinHabit spin_habit;  // of this thread

}  // namespace uroce::engine

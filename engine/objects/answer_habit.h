// SPDX-License-Identifier: BSD-2-Clause
// Whether the application answers a WRITE that a QP receives, or a message for which an event is raised, by posting
// something to the QP some microseconds later. Then the ACK is worth waiting with: it leaves behind the answer (that of
// an event ahead of it), in one system call, and the peer has both at a time.
// One that leaves before ends the polling of a peer that polls for it and then watches memory for the answer
// (ib_write_lat), and the answer waits for the peer's background thread, up to a time slice where both have one CPU.
//
// The last WRITE tells. A wait in vain has cost the peer its length, as it does where each side posts only after it has
// the ACK of the other, so after one some WRITEs are left out, and more when few waits have ended with an answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/time.h"

namespace uroce::engine {

class AnswerHabit {
 public:
  // By then an application has answered, also one that has to get its CPU back from the background thread.
  static constexpr Duration kAnswerTime = std::chrono::microseconds(50);

  // An ACK is owed for a WRITE. Whether it waits for an answer, until waits_until().
  bool on_owed(Time now) { return owe(now, false); }
  // The same for a message for which an event is raised.
  bool on_event(Time now) { return owe(now, true); }
  bool is_of_event() const { return of_event_; }
  // It is owed for more than that. Whether it has waited for an answer.
  bool on_more() {
    owed_at_ = {};
    return stop_waiting();
  }
  // The application has posted something. Whether the ACK has waited for that.
  bool on_posted(Time now) {
    if (now <= waits_until()) answered_ = true;
    if (waits_) doubt_ = std::max(doubt_ - 1, 0);
    return stop_waiting();
  }
  // The ACK leaves, and has waited in vain.
  void on_missed() {
    doubt_ = std::min(doubt_ + kMissWeight, kMostDoubt);
    left_out_ = 1u << doubt_;
    stop_waiting();
  }
  // The ACK leaves for another reason. Whether it has waited.
  bool stop_waiting() { return std::exchange(waits_, false); }

  Time waits_until() const { return owed_at_ + kAnswerTime; }

 private:
  static constexpr int kMissWeight = 4;  // doubt grows unless four waits in five end with an answer
  static constexpr int kMostDoubt = 12;  // 4096 left out after each wait in vain

  bool owe(Time now, bool of_event) {
    of_event_ = of_event;
    const bool answered = std::exchange(answered_, false);
    owed_at_ = now;
    if (!answered) return false;
    if (left_out_ > 0) {
      --left_out_;
      return false;
    }
    return waits_ = true;
  }

  Time owed_at_{};
  uint32_t left_out_ = 0;  // that many are not waited with
  int doubt_ = 0;
  bool answered_ = false, waits_ = false, of_event_ = false;
};

}  // namespace uroce::engine

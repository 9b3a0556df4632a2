// SPDX-License-Identifier: BSD-2-Clause
// How the background thread waits between two rounds: the heuristics of Progress, without threads and without a clock.
//
// It is there for programs whose threads do not poll, and must not be in the way of those that do. Some programs poll
// now and then and otherwise watch memory (ib_write_lat): packets that nobody came for give them away, and they are not
// relied on, the longer the more often they disappoint.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace uroce::engine {

class WaitPolicy {
 public:
  enum class Wait : uint8_t {
    kSpin,     // packets moved lately, no application thread polls, a CPU is idle: a passive target answers fast
    kSleep,    // until packets come, a timer expires, or somebody needs the thread
    kDefer,    // on a timer only: application threads take the packets, and a wake-up for each would disturb them
    kMakeWay,  // briefly: another thread holds the lock, and may wait for this very core
    kLook,     // not at all, but with a look at the descriptors: packets come all the time, and the network has news
  };
  enum class Round : uint8_t { kIdle, kMoved, kBusy };  // kBusy: another thread held the lock
  struct Turn {
    Round round = Round::kIdle;
    Time began{}, ended{};
    Time polled_before{}, polled{};  // when an application thread polled last, as known when the round began and ended
    bool attended = false;           // a program is relied on that may sleep (attendance.h)
    Time looked{};                   // when the thread last looked at its descriptors
    bool sleep_expected = false;     // an application thread has said that it is about to sleep
    bool (*has_spare_cpu)(Time now) = nullptr;  // asked before a spin (base/spare_cpu.h); null: there is one
  };

  // An application thread that polled within this time takes the packets itself.
  static constexpr Duration kAttended = std::chrono::microseconds(100);

  explicit WaitPolicy(Time now) : busy_at_(now) {}

  Wait after(const Turn& turn);
  // It has deferred to application threads last, and would do so again.
  bool relies(Time now) const { return deferred_ && now >= trust_from_; }

 private:
  // Until when polling applications are not relied on, what with the packets that this round found.
  void judge(const Turn& turn, bool polled);

  Time busy_at_;           // when a round moved packets last
  bool deferred_ = false;  // the last time
  Time missed_at_{};       // when packets were found that such a program had not taken; perhaps they had just come
  Time trust_from_{};      // until then polling applications are not relied on
  Duration distrust_ = kMinDistrust;

  static constexpr Duration kMinDistrust = std::chrono::milliseconds(1);
};

}  // namespace uroce::engine

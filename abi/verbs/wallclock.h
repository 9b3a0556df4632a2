// SPDX-License-Identifier: BSD-2-Clause
// Completion timestamps by wall clock, of one extended completion queue. Not thread-safe: who polls it has its lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace uroce::verbs {

inline uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Completions have the time of the monotonic clock, and this adds how far the wall clock is ahead. The distance is
// taken once for each batch, from ibv_start_poll to ibv_end_poll: taken for each completion it would differ by what the
// thread was interrupted between the two clocks, so that a later completion could seem the earlier one; taken once for
// all it would not notice a clock that is set. It only grows: after the wall clock was set back, times go on from where
// they were, ahead of it, instead of standing still or going back. NTP's slewing moves both clocks alike.
template <uint64_t (*now)(clockid_t) = now_ns>
class CompletionWallclock {
 public:
  void begin_batch() { taken_ = false; }
  // Of the completions of a CQ in the order of their polling; never less than the one before. Twice of one: the same.
  uint64_t of(uint64_t timestamp) {
    if (!taken_) ahead_ = std::max(ahead_, distance());
    taken_ = true;
    return last_ =
               std::max(last_, timestamp + ahead_);  // shards read the clock one after the other, and push as they come
  }

 private:
  // In this order an interruption in between makes it too small, which the larger one of an earlier batch mends.
  static uint64_t distance() {
    const uint64_t wall = now(CLOCK_REALTIME);
    return wall - std::min(wall, now(CLOCK_MONOTONIC));  // before 1970 + uptime: 0
  }

  uint64_t ahead_ = 0, last_ = 0;
  bool taken_ = false;
};

}  // namespace uroce::verbs

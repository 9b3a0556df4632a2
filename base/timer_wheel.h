// SPDX-License-Identifier: BSD-2-Clause
// Timers by the tens of thousands at the price of a few: a hierarchical timer wheel (Varghese and Lauck). Setting,
// moving and cancelling a timer takes constant time and touches its own cache line and one slot's.
//
// Time is counted in ticks of about a microsecond. A timer never fires early, and at most one tick late. It lies on the
// level of the highest digit, to base 64, in which its tick differs from the wheel's position, in the slot of that
// digit. So all timers of a level come before those of the next level, and nine levels hold any time. When the position
// comes to a slot, its timers fire or move to lower levels.
//
// A timer whose deadline moves later stays where it is, and moves when its slot's turn comes: every ACK puts off a
// retransmission timer, which nearly never fires. Used by Datapath, under the progress lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace uroce::engine {

class TimerWheel {
  using Hook = boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  static constexpr uint64_t kTickBits = 10, kDigitBits = 6, kSlots = 1 << kDigitBits, kLevels = 9;

 public:
  static constexpr Duration kTick{1 << kTickBits};

  class Timer {  // a base of what has the timer
   public:
    Time deadline() const { return deadline_; }

   private:
    friend TimerWheel;
    Hook hook_;
    Time deadline_ = kNever;
    uint64_t tick_ : 54 = 0;  // for which it was put where it is
    uint64_t slot_ : 10 = 0;
  };

  // The timer fires at `deadline` and not when it was to fire so far; kNever: not at all. A deadline that has passed
  // stands for the next tick: who sets it again and again does not keep the wheel from going on.
  void set(Timer& timer, Time deadline) {
    timer.deadline_ = deadline;
    if (timer.hook_.is_linked()) {
      if (tick_to_fire(deadline) >= timer.tick_) return;
      unlink(timer);
    }
    if (deadline != kNever) insert(timer);
  }
  void cancel(Timer& timer) {
    timer.deadline_ = kNever;
    if (timer.hook_.is_linked()) unlink(timer);
  }

  // Calls `fire(timer)` for timers whose deadline has come, by their slots; it may set and cancel any timer. Looks at
  // `limit` timers at most, however much time has passed: the others are left to the next call.
  template <class Fire>
  void expire(Time now, size_t limit, Fire&& fire) {
    now_ = std::max(now_, ticks(now));
    for (; limit > 0 && (!due_.empty() || next_slot()); --limit) {
      Timer& timer = due_.front();
      due_.pop_front();
      if (timer.deadline_ == kNever) continue;
      if (first_tick(timer.deadline_) > now_) {
        insert(timer);
      } else {
        fire(timer);
      }
    }
  }

  // When to call expire() next; kNever if no timer is set. Never later than the first timer fires. It may be earlier:
  // on its way a timer changes its level up to eight times.
  Time next_deadline() const {
    if (!due_.empty()) return time(position_);
    return levels_ == 0 ? kNever : time(first_slot().tick);
  }

 private:
  using List = boost::intrusive::list<Timer, boost::intrusive::member_hook<Timer, Hook, &Timer::hook_>,
                                      boost::intrusive::constant_time_size<false>>;
  static_assert(kTickBits + kLevels * kDigitBits == 64);
  struct FirstSlot {
    uint64_t level, digit;
    uint64_t tick;  // when its turn comes
  };

  static uint64_t ns(Time t) { return static_cast<uint64_t>(std::max<int64_t>(0, t.time_since_epoch().count())); }
  static uint64_t ticks(Time now) { return ns(now) >> kTickBits; }
  static uint64_t first_tick(Time deadline) { return (ns(deadline) + kTick.count() - 1) >> kTickBits; }
  static Time time(uint64_t tick) { return Time(Duration(static_cast<int64_t>(tick << kTickBits))); }
  uint64_t tick_to_fire(Time deadline) const { return std::max(first_tick(deadline), now_ + 1); }

  void insert(Timer& timer) {
    const uint64_t tick = tick_to_fire(timer.deadline_);
    const uint64_t level = (std::bit_width(tick ^ position_) - 1) / kDigitBits;
    const uint64_t digit = tick >> (level * kDigitBits) & (kSlots - 1);
    timer.tick_ = tick;
    timer.slot_ = level * kSlots + digit;
    slots_[timer.slot_].push_back(timer);
    occupied_[level] |= uint64_t{1} << digit;
    levels_ |= uint64_t{1} << level;
  }

  // From its slot, or from `due_`; then the slot has been emptied before.
  void unlink(Timer& timer) {
    timer.hook_.unlink();
    if (slots_[timer.slot_].empty()) mark_empty(timer.slot_ / kSlots, timer.slot_ % kSlots);
  }
  void mark_empty(uint64_t level, uint64_t digit) {
    occupied_[level] &= ~(uint64_t{1} << digit);
    if (occupied_[level] == 0) levels_ &= ~(uint64_t{1} << level);
  }

  // Of those that have timers; some have.
  FirstSlot first_slot() const {
    const auto level = static_cast<uint64_t>(std::countr_zero(levels_));
    const auto digit = static_cast<uint64_t>(std::countr_zero(occupied_[level]));
    const uint64_t shift = level * kDigitBits;
    const uint64_t higher_digits = position_ >> shift >> kDigitBits << kDigitBits;
    return {level, digit, (higher_digits | digit) << shift};
  }

  // Goes on to the next slot whose turn has come. False: there is none until now.
  bool next_slot() {
    const FirstSlot slot = levels_ == 0 ? FirstSlot{0, 0, now_ + 1} : first_slot();
    position_ = std::min(slot.tick, now_);
    if (slot.tick > now_) return false;
    due_.splice(due_.end(), slots_[slot.level * kSlots + slot.digit]);
    mark_empty(slot.level, slot.digit);
    return true;
  }

  uint64_t now_ = 0;                          // ticks
  uint64_t position_ = 0;                     // not after `now_`; timers in slots are for later ticks
  uint64_t levels_ = 0;                       // a bit for each level that has timers
  std::array<uint64_t, kLevels> occupied_{};  // a bit for each slot that has some
  std::array<List, kLevels * kSlots> slots_;
  List due_;  // their slot's turn has come; they are to be looked at
};

}  // namespace uroce::engine

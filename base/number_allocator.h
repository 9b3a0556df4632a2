// SPDX-License-Identifier: BSD-2-Clause
// Gives numbers out, which rest when they come back: QP numbers in a device (IBTA: timewait), ranges of them in
// the broker. Packets for who had a number may still be under way, or a peer may go on repeating them, and a new holder
// with the same peer would take them for its own. Only the peer knows how long it goes on, so the rest is not counted
// in seconds but is as long as there are numbers: half of those that are not in use rest, and the one that has rested
// longest is woken first. With a few QPs out of 65,536 a number rests while 32,000 others come and go. When nearly all
// are in use the rest is short, and with the last one there is none: refusing numbers to a program that takes and
// returns them quickly would be worse.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/zeroed_array.h"

namespace uroce {

class NumberAllocator {
 public:
  // From 0 to before `count`. `random` gives 32 uniformly distributed bits.
  NumberAllocator(uint32_t count, std::function<uint32_t()> random)
      : count_(count), states_(make_zeroed_array<State>(count)), random_(std::move(random)) {}

  // One that is free, not predictable from earlier ones. None: all are in use.
  std::optional<uint32_t> take() {
    if (used_ == count_) return std::nullopt;
    ++used_;
    wake();
    uint32_t i = random_() % count_;
    while (states_[i].is != State::kFree) i = (i + 1) % count_;
    states_[i].is = State::kUsed;
    return i;
  }
  // This one, whether it rests or not. False: it is in use, or is none of them.
  bool take(uint32_t number) {
    if (number >= count_ || states_[number].is == State::kUsed) return false;
    if (states_[number].is == State::kResting) forget_rest(number);
    states_[number] = {.is = State::kUsed};
    ++used_;
    wake();
    return true;
  }
  void release(uint32_t number) {
    states_[number] = {.is = State::kResting};
    (resting_ == 0 ? oldest_ : states_[newest_].next) = number;
    newest_ = number;
    ++resting_;
    --used_;
    wake();
  }
  uint32_t used() const { return used_; }

 private:
  struct State {
    uint32_t next = 0;  // resting: who came after it
    enum : uint8_t { kFree, kUsed, kResting } is = kFree;
  };

  // More than half of the unused numbers do not rest.
  void wake() {
    for (; resting_ > (count_ - used_) / 2; --resting_) {
      states_[oldest_].is = State::kFree;
      oldest_ = states_[oldest_].next;
    }
  }
  void forget_rest(uint32_t number) {
    uint32_t before = oldest_;
    if (number == oldest_) {
      oldest_ = states_[number].next;
    } else {
      while (states_[before].next != number) before = states_[before].next;
      states_[before].next = states_[number].next;
      if (newest_ == number) newest_ = before;
    }
    --resting_;
  }

  uint32_t count_;
  ZeroedArray<State> states_;
  uint32_t used_ = 0;
  // Resting numbers, a list in the order in which they came back.
  uint32_t resting_ = 0, oldest_ = 0, newest_ = 0;
  std::function<uint32_t()> random_;
};

}  // namespace uroce

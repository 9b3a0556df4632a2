// SPDX-License-Identifier: BSD-2-Clause
// Pairs of the broker's clients that are about to exchange packets by memory, by ranges of QP numbers (lease_range.h).
// Each of the two is given memory that it is to write to, and seals it (io/same_host/peer_memory.h); then the other one
// gets it too. Until both have done so the memory is kept here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/time.h"
#include "base/unique_fd.h"

namespace uroce::broker {

class PendingMeetings {
 public:
  struct Pending {
    struct Memory {
      uint32_t range;  // of who writes to it
      UniqueFd file;
      UniqueFd hold;  // of strangers: base/page_hold.h
      bool sealed = false;
    };
    std::array<Memory, 2> memories;
    bool of_strangers;  // they do not make each other's pages

    int memory_of(uint32_t range) const { return memories[memories[0].range == range ? 0 : 1].file.get(); }
  };

  // In place of an earlier one. Null: there is no memory for both.
  const Pending* begin(uint32_t one, uint32_t other, bool of_strangers);
  // If there is one, and both have sealed their memory.
  std::optional<Pending> take_sealed(uint32_t one, uint32_t other);
  void end(uint32_t one, uint32_t other) { begun_.erase(pair(one, other)); }
  // All with that range.
  void forget(uint32_t range);

  // Both are being given the other one's memory, and hold it themselves in a moment (io/same_host/peer_memory.h).
  void hold_until(Time until, Pending&& met);
  // What need not be held any more.
  void release(Time now);

  size_t size() const { return begun_.size(); }
  // In how many somebody for whom `is_his` is true has not sealed what he was given, as far as is known.
  template <class IsHis>
  size_t unsealed_by(IsHis&& is_his) const {
    size_t count = 0;
    for (const auto& [ranges, begun] : begun_) {
      bool waits = false;
      for (const auto& memory : begun.memories) waits = waits || (!memory.sealed && is_his(memory.range));
      count += waits ? 1 : 0;
    }
    return count;
  }

 private:
  using Pair = std::pair<uint32_t, uint32_t>;
  static Pair pair(uint32_t one, uint32_t other) { return std::minmax(one, other); }

  struct Held {
    Time until;
    std::array<UniqueFd, 2> pages;
  };
  std::map<Pair, Pending> begun_;
  std::deque<Held> held_;  // the oldest first
};

}  // namespace uroce::broker

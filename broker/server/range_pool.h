// SPDX-License-Identifier: BSD-2-Clause
// Ranges of QP numbers (lease_range.h) that nobody leases. A user who has returned many gets one of these, and no fresh
// one, so what others have against a range (Cost of engine/io/same_host/), or still send to it, meets whoever it is
// meant for: who takes and returns leases as quickly as he can comes by no more than he has at a time, and kRest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <sys/types.h>
#include <utility>

#include "base/number_allocator.h"

namespace uroce::broker {

class RangePool {
 public:
  // Of so many that a user has returned one of the older half is given to him again: so long it has rested.
  static constexpr size_t kRest = 32;

  // From 0 to before `count`. `random`: NumberAllocator's.
  RangePool(uint32_t count, std::function<uint32_t()> random) : random_(random), fresh_(count, std::move(random)) {}

  // None: all are leased.
  std::optional<uint32_t> take(uid_t user) {
    const auto own = returned_.find(user);
    if (own != returned_.end() && own->second.size() >= kRest) return older_of(own);
    if (const auto fresh = fresh_.take()) return fresh;
    if (own != returned_.end()) return older_of(own);
    const auto most = std::max_element(returned_.begin(), returned_.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    return most == returned_.end() ? std::nullopt : std::optional(older_of(most));
  }
  // This one. False: it is leased, or is none of them.
  bool take_this(uint32_t number) {
    for (auto user = returned_.begin(); user != returned_.end(); ++user) {
      const auto found = std::find(user->second.begin(), user->second.end(), number);
      if (found == user->second.end()) continue;
      user->second.erase(found);
      if (user->second.empty()) returned_.erase(user);
      return true;
    }
    return fresh_.take(number);
  }
  // `user`: who has had it. None: nobody knows.
  void release(uint32_t number, std::optional<uid_t> user) {
    user ? returned_[*user].push_back(number) : fresh_.release(number);
  }

 private:
  using Returned = std::map<uid_t, std::deque<uint32_t>>;  // the oldest first; not empty
  uint32_t older_of(Returned::iterator user) {
    std::deque<uint32_t>& all = user->second;
    const auto chosen = all.begin() + static_cast<ptrdiff_t>(random_() % ((all.size() + 1) / 2));
    const uint32_t number = *chosen;
    all.erase(chosen);
    if (all.empty()) returned_.erase(user);
    return number;
  }

  const std::function<uint32_t()> random_;
  NumberAllocator fresh_;  // whom nobody has had
  Returned returned_;
};

}  // namespace uroce::broker

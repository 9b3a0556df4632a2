// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/partings.h"

#include <algorithm>
#include <iterator>

namespace uroce::broker {

void Partings::add(uint32_t other, uint32_t range, Time ends, const Tell& tell) {
  auto& partings = waiting_[other];
  const bool is_next = partings.empty() || partings.back().told;
  partings.push_back({range, ends, is_next && tell(other, range)});
  ++counts_[range];
}

void Partings::look(Time now, const HasRead& has_read, const Tell& tell) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    auto& [other, partings] = *waiting;
    const bool read = has_read(other);  // before there is more
    while (!partings.empty() && (now >= partings.front().ends || (read && partings.front().told))) {
      forget(partings.front().range);
      partings.pop_front();
    }
    for (Parting& each : partings) {
      each.told = each.told || tell(other, each.range);
      if (!each.told) break;
    }
    waiting = partings.empty() ? waiting_.erase(waiting) : std::next(waiting);
  }
}

bool Partings::is_untold(uint32_t other, uint32_t range) const {
  const auto waiting = waiting_.find(other);
  return waiting != waiting_.end() &&
         std::any_of(waiting->second.begin(), waiting->second.end(),
                     [range](const Parting& each) { return each.range == range && !each.told; });
}

void Partings::forget(uint32_t range) {
  const auto count = counts_.find(range);
  if (--count->second == 0) counts_.erase(count);
}

}  // namespace uroce::broker

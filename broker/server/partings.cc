// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/partings.h"

namespace uroce::broker {

void Partings::add(uint32_t other, uint32_t range, Time ends, const Tell& tell) {
  const auto waiting = waiting_.find(other);
  if (waiting == waiting_.end() && tell(other, range)) return;  // else in order
  waiting_[other].push_back({range, ends});
  ++counts_[range];
}

void Partings::tell_all(Time now, const Tell& tell) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    auto& [other, partings] = *waiting;
    while (!partings.empty() && (now >= partings.front().ends || tell(other, partings.front().range))) {
      forget(partings.front().range);
      partings.pop_front();
    }
    waiting = partings.empty() ? waiting_.erase(waiting) : std::next(waiting);
  }
}

void Partings::forget(uint32_t range) {
  const auto count = counts_.find(range);
  if (--count->second == 0) counts_.erase(count);
}

}  // namespace uroce::broker

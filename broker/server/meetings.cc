// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/meetings.h"

#include <algorithm>

#include "broker/server/bounds.h"

namespace uroce::broker {

bool Meetings::wish(uint32_t range, uint32_t other, bool one_is_enough, Time now) {
  Side& side = sides_[range];
  Side& others = sides_[other];
  if (side.met.contains(other) || is_put_off(side, other, now) || is_put_off(others, range, now)) return false;
  if (one_is_enough || others.wants.contains(range)) return std::max(side.met.size(), others.met.size()) < kMostMet;
  if (side.wants.size() < kMostWishes && side.wants.insert(other).second) others.wanted_by.insert(range);
  return false;
}

void Meetings::settle(uint32_t range, uint32_t other) {
  drop_wish(range, other);
  drop_wish(other, range);
  sides_[range].met.insert(other);
  sides_[other].met.insert(range);
}

void Meetings::unsettle(uint32_t range, uint32_t other) {
  sides_[range].met.erase(other);
  sides_[other].met.erase(range);
}

void Meetings::put_off(uint32_t range, uint32_t other, Time until) {
  sides_[range].put_off[other] = until;
}

bool Meetings::is_put_off(Side& side, uint32_t other, Time now) {
  std::erase_if(side.put_off, [now](const auto& each) { return each.second <= now; });
  return side.put_off.contains(other) || side.put_off.size() >= kMostWishes;
}

void Meetings::drop_wish(uint32_t range, uint32_t other) {
  sides_[range].wants.erase(other);
  sides_[other].wanted_by.erase(range);
}

void Meetings::forget(uint32_t range) {
  const auto found = sides_.find(range);
  if (found == sides_.end()) return;
  for (const uint32_t other : found->second.wants) sides_[other].wanted_by.erase(range);
  for (const uint32_t other : found->second.wanted_by) sides_[other].wants.erase(range);
  for (const uint32_t other : found->second.met) sides_[other].met.erase(range);
  sides_.erase(found);
}

const std::set<uint32_t>& Meetings::met(uint32_t range) const {
  static const std::set<uint32_t> nobody;
  const auto found = sides_.find(range);
  return found == sides_.end() ? nobody : found->second.met;
}

}  // namespace uroce::broker

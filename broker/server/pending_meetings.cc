// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/pending_meetings.h"

#include <algorithm>
#include <utility>

#include "base/page_hold.h"
#include "broker/server/bounds.h"
#include "engine/io/same_host/peer_memory.h"

namespace uroce::broker {

const PendingMeetings::Pending* PendingMeetings::begin(uint32_t one, uint32_t other, bool of_strangers) {
  Pending both{{{{.range = one, .file = {}, .hold = {}}, {.range = other, .file = {}, .hold = {}}}}, of_strangers};
  for (auto& memory : both.memories) {
    if (io::PeerMemory::make(memory.file) != 0) return nullptr;
    if (of_strangers && hold_first_page(memory.file.get(), memory.hold) != 0) return nullptr;
  }
  return &(begun_[pair(one, other)] = std::move(both));
}

// What they say is that it is to be looked at.
std::optional<PendingMeetings::Pending> PendingMeetings::take_sealed(uint32_t one, uint32_t other) {
  const auto found = begun_.find(pair(one, other));
  if (found == begun_.end()) return std::nullopt;
  bool all = true;
  for (auto& memory : found->second.memories) {
    memory.sealed = memory.sealed || io::PeerMemory::is_sealed(memory.file.get(), found->second.of_strangers);
    all = all && memory.sealed;
  }
  if (!all) return std::nullopt;
  Pending sealed = std::move(found->second);
  begun_.erase(found);
  return sealed;
}

void PendingMeetings::forget(uint32_t range) {
  std::erase_if(begun_, [range](const auto& each) { return each.first.first == range || each.first.second == range; });
}

void PendingMeetings::hold_until(Time until, Pending&& met) {
  if (!met.of_strangers) return;
  if (held_.size() == kMostPendingMeetings) held_.pop_front();
  held_.push_back({until, {std::move(met.memories[0].hold), std::move(met.memories[1].hold)}});
}

void PendingMeetings::release(Time now) {
  while (!held_.empty() && held_.front().until <= now) held_.pop_front();
}

}  // namespace uroce::broker

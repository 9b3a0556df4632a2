// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/attendance.h"

#include <utility>

namespace uroce::engine {

namespace {

// A program that has several sets, which it looks after by turns: so long one of them tells of packets at least.
constexpr Duration kHeld = std::chrono::milliseconds(10);

}  // namespace

bool Attendance::claim(const std::shared_ptr<PollSet>& set, Time now) {
  const PollSet* const held = held_.load(std::memory_order_relaxed);
  if (held != set.get() && (held == nullptr || now - held_at_.load(std::memory_order_relaxed) >= kHeld)) {
    const std::lock_guard changing(changes_);
    if (held_.load(std::memory_order_relaxed) == held && set->open()) hold(set);
  }
  const PollSet* const holds = held_.load(std::memory_order_relaxed);
  if (holds == set.get()) held_at_.store(now, std::memory_order_relaxed);
  at_.store(now, std::memory_order_relaxed);
  return holds != nullptr;
}

void Attendance::release(const PollSet& set) {
  if (held_.load(std::memory_order_relaxed) != &set) return;
  const std::lock_guard changing(changes_);
  if (held_.load(std::memory_order_relaxed) == &set) hold(nullptr);
}

// From now on this one tells of packets, when put() has been called.
void Attendance::hold(std::shared_ptr<PollSet> set) {
  if (held_set_) held_set_->take_out();
  has_all_of_.store(0, std::memory_order_relaxed);
  held_.store(set.get(), std::memory_order_relaxed);
  held_set_ = std::move(set);
}

bool Attendance::put(std::span<const pollfd> descriptors, uint32_t setups) {
  const std::lock_guard changing(changes_);
  if (!held_set_ || !held_set_->put(descriptors)) return false;
  has_all_of_.store(setups, std::memory_order_relaxed);
  return true;
}

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/attendance.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/thread.h"

namespace uroce::engine {

namespace {

// A program that has several sets, which it looks after by turns: so long one of them tells of packets at least.
constexpr Duration kHeld = std::chrono::milliseconds(10);
// A set in which no answer is due tells of packets for so long after the program has looked after it.
constexpr Duration kLeftAlone = std::chrono::milliseconds(1);
constexpr uint32_t kMostInVain = 64;
constexpr Duration kLongestPause = std::chrono::seconds(10);
constexpr uint32_t kMostOneByOne = 16;  // within kTogether
constexpr Duration kTogether = std::chrono::seconds(1);
constexpr Duration kLongestPauseOfOneByOne = std::chrono::minutes(10);

}  // namespace

bool Attendance::claim(const std::shared_ptr<PollSet>& set, Time now) {
  const PollSet* const held = held_.load(std::memory_order_relaxed);
  if (held == nullptr && now < paused_until_.load(std::memory_order_relaxed)) return false;
  if (held != nullptr && held != set.get() && set->is_used()) several_.store(true, std::memory_order_relaxed);
  if (held != set.get() && (held == nullptr || now - held_at_.load(std::memory_order_relaxed) >= kHeld)) {
    if (!set->is_used()) return false;
    const std::lock_guard changing(changes_);
    if (held_.load(std::memory_order_relaxed) == held && set->open()) hold(set);
  }
  const PollSet* const holds = held_.load(std::memory_order_relaxed);
  if (holds == set.get()) {
    held_at_.store(now, std::memory_order_relaxed);
    held_by_.store(this_thread(), std::memory_order_relaxed);
  }
  at_.store(now, std::memory_order_relaxed);
  return holds != nullptr;
}

void Attendance::note(bool found, bool woken, Time now) {
  if (found) {
    if (in_vain_.load(std::memory_order_relaxed) != 0) in_vain_.store(0, std::memory_order_relaxed);
    if (woken) pause_.store(kShortestPause, std::memory_order_relaxed);
    return;
  }
  if (!woken || in_vain_.fetch_add(1, std::memory_order_relaxed) < kMostInVain) return;
  in_vain_.store(0, std::memory_order_relaxed);
  const Duration pause = pause_.load(std::memory_order_relaxed);
  pause_.store(std::min<Duration>(2 * pause, kLongestPause), std::memory_order_relaxed);
  pause_until(now + pause);
}

void Attendance::note_one_by_one(Time now) {
  if (now - one_by_one_since_.load(std::memory_order_relaxed) > kTogether) {
    one_by_one_since_.store(now, std::memory_order_relaxed);
    one_by_one_.store(0, std::memory_order_relaxed);
  }
  if (one_by_one_.fetch_add(1, std::memory_order_relaxed) < kMostOneByOne) return;
  one_by_one_.store(0, std::memory_order_relaxed);
  const Duration pause = pause_of_one_by_one_.load(std::memory_order_relaxed);
  pause_of_one_by_one_.store(std::min<Duration>(2 * pause, kLongestPauseOfOneByOne), std::memory_order_relaxed);
  pause_until(now + pause);
}

void Attendance::pause_until(Time end) {
  paused_until_.store(end, std::memory_order_relaxed);
  const std::lock_guard changing(changes_);
  hold(nullptr);
}

void Attendance::release(const PollSet& set) {
  note_answer(set);
  if (held_.load(std::memory_order_relaxed) != &set) return;
  const std::lock_guard changing(changes_);
  if (held_.load(std::memory_order_relaxed) == &set) hold(nullptr);
}

// --- several sets ---------------------------------------------------------------------------------------------------

void Attendance::add_request(const std::shared_ptr<PollSet>& set, Time now) {
  const std::lock_guard changing(changes_);
  if (set->requested_at() != Time{}) forget_request(*set);
  try {
    answers_.push_back(set);
  } catch (const std::bad_alloc&) {
    return;
  }
  set->set_requested_at(now);
  // This may be the last that the program does before it sleeps.
  if (!held_set_ || held_set_ == set || !held_set_->bears_no_event() || held_set_->answer_is_due(now)) return;
  hand_to(set);
  if (!has_all(setups())) hold(nullptr);  // the next leave() does it
}

void Attendance::remove_request(const PollSet& set) {
  const std::lock_guard changing(changes_);
  forget_request(set);
}

void Attendance::forget_request(const PollSet& set) {
  const auto found =
      std::find_if(answers_.begin(), answers_.end(), [&](const auto& each) { return each.get() == &set; });
  if (found == answers_.end()) return;
  (*found)->set_requested_at({});
  answers_.erase(found);
}

void Attendance::choose(const std::shared_ptr<PollSet>& set, bool asked_in_vain, Time now) {
  const std::lock_guard changing(changes_);
  if (!held_set_) return;
  if (asked_in_vain) {
    // What other threads wait for is theirs. A set that cannot tell of packets yet is told of events by our thread.
    const bool own = held_by_.load(std::memory_order_relaxed) == this_thread();
    if (set == held_set_ || !own) return;
    if (!hand_to(set)) return hold(nullptr);
    held_at_.store(now, std::memory_order_relaxed);
    return;
  }
  if (held_set_->answer_is_due(now)) return;
  while (!answers_.empty() && !answers_.front()->answer_is_due(now)) forget_request(*answers_.front());
  if (!answers_.empty() && answers_.front() != held_set_) hand_to(answers_.front());
}

void Attendance::stop_unless_due(Time now) {
  if (now - held_at_.load(std::memory_order_relaxed) < kLeftAlone) return;
  const std::lock_guard changing(changes_);
  if (held_set_ && held_set_->bears_no_event() && !held_set_->answer_is_due(now)) hold(nullptr);
}

void Attendance::stop() {
  if (!is_to_be_tidied()) return;
  const std::lock_guard changing(changes_);
  if (held_set_ && held_set_->bears_no_event()) hold(nullptr);
}

// The set tells of packets at once, if the one before did.
bool Attendance::hand_to(const std::shared_ptr<PollSet>& set) {
  if (!set->is_used() || !set->open()) return false;
  const uint32_t had_all_of = has_all_of_.load(std::memory_order_relaxed);
  hold(set);
  if (had_all_of != 0 && had_all_of == setups()) {
    try {
      if (held_set_->put(descriptors_)) has_all_of_.store(had_all_of, std::memory_order_relaxed);
    } catch (const std::bad_alloc&) {  // leave() does it
    }
  }
  return true;
}

// From now on this one tells of packets, when put() has been called.
void Attendance::hold(std::shared_ptr<PollSet> set) {
  if (held_set_) held_set_->take_out();
  has_all_of_.store(0, std::memory_order_relaxed);
  held_by_.store(this_thread(), std::memory_order_relaxed);
  held_bears_.store(set && set->bears_no_event(), std::memory_order_relaxed);
  held_.store(set.get(), std::memory_order_relaxed);
  held_set_ = std::move(set);
}

void Attendance::forget_descriptors() {
  const std::lock_guard changing(changes_);
  put_at_ = setups();
  has_all_of_.store(0, std::memory_order_relaxed);
  if (held_set_) held_set_->take_out();
}

bool Attendance::put(std::span<const pollfd> descriptors, uint32_t setups) {
  const std::lock_guard changing(changes_);
  // Another thread may have put in newer ones.
  if (!held_set_ || static_cast<int32_t>(setups - put_at_) < 0) return false;
  has_all_of_.store(0, std::memory_order_relaxed);
  put_at_ = setups;
  descriptors_.assign(descriptors.begin(), descriptors.end());
  if (!held_set_->put(descriptors)) return false;
  has_all_of_.store(setups, std::memory_order_relaxed);
  return true;
}

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/sealing.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/thread.h"

namespace uroce::io {

namespace {

constexpr std::chrono::milliseconds kLookAgain{1};

}  // namespace

bool Sealing::add(std::unique_ptr<Peer> peer) {
  const std::lock_guard guard(lock_);
  waiting_.push_back({std::move(peer), monotonic_now() + kPatience});
  if (runs_) return true;
  try {
    start_thread("uroce peers", [self = shared_from_this()] { self->run(); }).detach();
  } catch (const std::system_error&) {
    waiting_.pop_back();
    return false;
  }
  return runs_ = true;
}

void Sealing::forget(uint32_t range) {
  const std::lock_guard guard(lock_);
  std::erase_if(waiting_, [range](const Waiting& each) { return each.peer->range == range; });
  forgotten_ |= sealed_ != nullptr && sealed_->range == range;
}

void Sealing::forget_all() {
  const std::lock_guard guard(lock_);
  waiting_.clear();
  forgotten_ = true;
}

void Sealing::end() {
  const std::lock_guard guard(lock_);
  waiting_.clear();
  ended_ = true;
}

size_t Sealing::size() const {
  const std::lock_guard guard(lock_);
  return waiting_.size() + (sealed_ != nullptr ? 1 : 0);
}

void Sealing::run() {
  while (work()) std::this_thread::sleep_for(kLookAgain);
}

// False: there is nothing to do any more.
bool Sealing::work() {
  std::unique_lock guard(lock_);
  const Time now = monotonic_now();
  std::erase_if(waiting_, [now](const Waiting& each) { return now >= each.ends && !each.peer->is_mapped_there(); });
  while (true) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                   [](const Waiting& each) { return each.peer->is_mapped_there(); });
    if (next == waiting_.end()) break;
    std::unique_ptr<Peer> peer = std::move(next->peer);
    waiting_.erase(next);
    sealed_ = peer.get();
    forgotten_ = false;
    guard.unlock();
    const bool sealed = peer->seal();
    guard.lock();
    sealed_ = nullptr;
    if (sealed && !forgotten_ && !ended_) take_(std::move(peer));
  }
  return runs_ = !waiting_.empty();
}

}  // namespace uroce::io

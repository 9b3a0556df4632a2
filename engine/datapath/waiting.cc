// SPDX-License-Identifier: BSD-2-Clause
// Progress, as application threads see it that wait: in ibv_get_cq_event, or for the descriptor of a channel.
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <poll.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/signals.h"
#include "base/spare_cpu.h"
#include "base/thread.h"
#include "engine/datapath/descriptors.h"
#include "engine/datapath/progress.h"
#include "engine/datapath/spin_habit.h"

namespace uroce::engine {

namespace {

// When a stream has paused for so long it is over. The program has other things to do as well.
constexpr Duration kStreamPause = std::chrono::microseconds(30), kLongestService = std::chrono::microseconds(500);
// How often a program that is about to wait tries to leave nothing behind.
constexpr int kMostLooks = 4;

}  // namespace

// --- a thread that waits for an event -------------------------------------------------------------------------------

// Also where the thread is cancelled.
class Progress::Watching {
 public:
  explicit Watching(Progress& progress) : progress_(progress) {}
  ~Watching() {
    const CallerState kept;
    progress_.leave_watch();
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  Progress& progress_;
};

bool Progress::has_waiters() const {
  const Time now = monotonic_now();
  return now - left_at_.load(std::memory_order_relaxed) < kOff || attendance_.lasts(now);
}

// Who waits while another one watches.
class Progress::Candidate {
 public:
  explicit Candidate(Progress& progress) : progress_(progress) {
    progress_.candidates_.fetch_add(1, std::memory_order_seq_cst);
    here = &progress_;
  }
  ~Candidate() {
    here = nullptr;
    progress_.candidates_.fetch_sub(1, std::memory_order_seq_cst);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  [[gnu::tls_model("initial-exec")]] static inline thread_local const Progress* here = nullptr;  // this thread is one

 private:
  Progress& progress_;
};

// A signal handler has left the thread's last wait by siglongjmp(): nothing has been unwound.
void Progress::forget_jump() {
  if (std::exchange(Candidate::here, nullptr) == this) candidates_.fetch_sub(1, std::memory_order_seq_cst);
  if (watcher_.load(std::memory_order_relaxed) == Watcher::kApplication &&
      watching_thread_.load(std::memory_order_relaxed) == this_thread()) {
    leave_watch();
  }
}

Waited Progress::wait_for_event(const LookForEvent& look, int fd) {
  if (!started_) return wait_without_packets(fd);
  forget_jump();
  while (true) {
    Watcher watcher = Watcher::kNobody;
    if (watcher_.compare_exchange_strong(watcher, Watcher::kApplication, std::memory_order_seq_cst)) {
      return watch(look, fd);
    }
    const Candidate candidate(*this);
    if (watcher == Watcher::kBackground) {
      offered_.store(false);  // somebody is there to take it
      wake();
    }
    std::array<pollfd, 2> descriptors{{{fd, POLLIN, 0}, {offer_descriptor_, POLLIN, 0}}};
    const int ready = ppoll(descriptors.data(), descriptors.size(), nullptr, nullptr);
    if (ready < 0) return errno == EINTR && calls_go_on_after_signals() ? Waited::kLook : Waited::kInterrupted;
    if (descriptors[1].revents != 0) take_from(offer_descriptor_);
    if (descriptors[0].revents != 0 || look([] {})) return Waited::kLook;
  }
}

Waited Progress::wait_without_packets(int fd) {
  pollfd descriptor{fd, POLLIN, 0};
  if (ppoll(&descriptor, 1, nullptr, nullptr) >= 0 || (errno == EINTR && calls_go_on_after_signals()))
    return Waited::kLook;
  return Waited::kInterrupted;
}

Waited Progress::watch(const LookForEvent& look, int fd) {
  const Watching watching(*this);
  watching_thread_.store(this_thread(), std::memory_order_relaxed);
  offered_.store(false);
  for_each_shard([](Shard& shard) { shard.awake(); });
  watcher_kicked_.store(false, std::memory_order_seq_cst);
  const Time began = monotonic_now();
  Duration awake = has_spare_cpu(began) ? spin_habit.begin(began) : Duration{};
  while (true) {
    if (look([this] { for_each_shard([](Shard& shard) { shard.serve(); }); })) {
      end_wait();
      return Waited::kLook;
    }
    if (awake > Duration{}) {
      pause(1);
      if (monotonic_now() - began < awake) continue;
      awake = {};
    }
    std::optional<Duration> time;
    try {
      watched_.assign({{watcher_descriptor_, POLLIN, 0}, {fd, POLLIN, 0}});
      time = prepare_to_sleep();
    } catch (const std::bad_alloc&) {
      time = kNoMemory;
      watched_.clear();
    }
    int ready = 0;
    if (time) {
      const timespec limit = as_timespec(*time);
      ready = ppoll(watched_.data(), watched_.size(), *time == Duration::max() ? nullptr : &limit, nullptr);
    }
    const int error = errno;
    for_each_shard([](Shard& shard) { shard.awake(); });
    if (ready < 0) return error == EINTR && calls_go_on_after_signals() ? Waited::kLook : Waited::kInterrupted;
    if (ready > 0 && watched_[0].revents != 0) {
      watcher_kicked_.store(false, std::memory_order_seq_cst);  // before the next look
      take_from(watcher_descriptor_);
    }
    if (ready > 0 && watched_[1].revents != 0) {
      end_wait();
      return Waited::kLook;
    }
  }
}

// Nothing: do not sleep. Packets that other threads poll for wake nobody, as where the background thread defers.
std::optional<Duration> Progress::prepare_to_sleep() {
  const CallerState kept;
  const Time now = monotonic_now();
  Duration time = Duration::max();
  bool go_on = false;
  for_each_shard([&](Shard& shard) {
    const std::optional<Duration> sleep = !shard.attended_by_others(now) ? shard.sleep(watched_)
                                          : shard.doze()                 ? std::optional(kDefer)
                                                                         : std::nullopt;
    go_on |= !sleep;
    time = std::min(time, sleep.value_or(Duration{}));
  });
  if (go_on) return std::nullopt;
  return time;
}

// --- a program that polls the descriptor of a channel ---------------------------------------------------------------

// Several shards exchange by memory, which no descriptor tells of.
bool Progress::claim(const std::shared_ptr<PollSet>& set) {
  const CallerState kept;
  if (!started_ || shard_count() != 1) return false;
  return attendance_.claim(set, monotonic_now());
}

void Progress::release(const PollSet& set) {
  const CallerState kept;
  attendance_.release(set);
}

void Progress::note_request(const std::shared_ptr<PollSet>& set) {
  if (!attendance_.has_several()) return;
  const CallerState kept;
  attendance_.note_request(set, monotonic_now());
}

void Progress::note_answer(const PollSet& set) {
  const CallerState kept;
  attendance_.note_answer(set);
}

void Progress::note_one_by_one() {
  const CallerState kept;
  attendance_.note_one_by_one(monotonic_now());
}

// Who receives a long message is not to be woken for every few packets of it.
bool Progress::serve_stream(const LookForEvent& look, bool woken) {
  const CallerState kept;
  const Time began = monotonic_now();
  Time now = began, came_at{};
  bool found = false, any = false, again = false, served = false;
  int busy = 0;
  do {
    std::optional<Datapath::Moved> moved;
    found = look([this, &moved] { moved = shards_[0]->serve_inline(); });
    now = monotonic_now();
    if (found) break;
    if (!moved) {  // another thread moves them
      if (++busy > kMostLooks) break;
      pause(kStreamPauses);
    }
    served |= moved.has_value();
    again = !moved || moved->received > 0;
    any |= moved && moved->received > 0;
    if (moved && (moved->more_to_come || moved->pressed || moved->sent > 0)) came_at = now;
  } while ((again || now - came_at < kStreamPause) && now - began < kLongestService);
  attendance_.note(found || any, woken, now);
  // That has held the lock for a moment, in which somebody may have rung.
  if (!served && !found && !shards_[0]->leave_to_holder()) shards_[0]->serve_inline();
  shards_[0]->look_after_leavers();
  return found;
}

bool Progress::linger(const LookForEvent& look, bool waits) {
  const CallerState kept;
  const Time began = monotonic_now();
  const Duration awake = !has_spare_cpu(began) ? Duration{}
                         : waits               ? spin_habit.begin(began)
                                               : spin_habit.begin_unsure(began);
  bool found = false;
  for (Time now = began; !found && now - began < awake; now = monotonic_now()) {
    pause(1);
    found = look([this] { shards_[0]->serve_inline(); });
  }
  if (found) end_wait();
  if (awake > Duration{}) shards_[0]->look_after_leavers();
  return found;
}

void Progress::end_wait() {
  spin_habit.end(monotonic_now());
}

void Progress::leave(const std::shared_ptr<PollSet>& set, bool asked_in_vain) {
  const CallerState kept;
  if (attendance_.has_several()) attendance_.note_sleep(set, asked_in_vain, monotonic_now());
  attendance_.leave(true);
  const bool left = leave_nothing();
  if (left && attendance_.is_to_be_tidied()) for_each_shard([](Shard& shard) { shard.wake_if_asleep(); });
}

void Progress::leave_for_others() {
  const CallerState kept;
  attendance_.leave(true);  // this thread may have polled since
  leave_nothing();
}

// False: the background thread sees to it.
bool Progress::leave_nothing() {
  bool left = false;
  try {
    left = try_to_leave_nothing();
  } catch (const std::bad_alloc&) {  // for the list of descriptors
  }
  if (!left) for_each_shard([](Shard& shard) { shard.hand_over_to_sleep(); });
  return left;
}

// False: there is more to do than one call should.
bool Progress::try_to_leave_nothing() {
  std::vector<pollfd> descriptors;
  std::optional<uint32_t> setups;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    switch (shards_[0]->leave(descriptors, setups)) {
      case Shard::Left::kDone:
        return !setups || attendance_.put(descriptors, *setups);
      case Shard::Left::kBusy:
        if (shards_[0]->leave_to_holder()) return true;
        break;
      case Shard::Left::kMore:
        if (!shards_[0]->serve_inline() && shards_[0]->leave_to_holder()) return true;
    }
  }
  return false;
}

}  // namespace uroce::engine

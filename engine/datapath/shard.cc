// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/shard.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/spare_cpu.h"
#include "base/thread.h"
#include "engine/datapath/progress.h"
#include "engine/memory/memory_access.h"

namespace uroce::engine {

namespace {

// What a thread does in a row while others keep ringing.
constexpr int kRoundsInARow = 4;
// When the background thread takes what it receives for a stream.
constexpr uint32_t kStreamRounds = 4;
// Between two attempts to send what the packet I/O has no room for (a netdev that is down, say) or what the kernel put
// off; grows as long as they fail.
constexpr Duration kMinPressure = std::chrono::microseconds(50);
constexpr Duration kMaxPressure = std::chrono::milliseconds(1);
// How exactly it is known when one polled: not every poll writes to memory that all threads share.
constexpr Duration kPollNoted = std::chrono::microseconds(20);

}  // namespace

Shard::Shard(Progress& progress, std::unique_ptr<Datapath> datapath)
    : progress_(progress), datapath_(std::move(datapath)), policy_(monotonic_now()) {}

// --- application threads --------------------------------------------------------------------------------------------

// Nothing: another thread was at it.
std::optional<Datapath::Moved> Shard::rounds(Caller caller) {
  const CallerState kept;
  Datapath::Moved moved;
  Time began{};
  int rounds = 0;
  do {
    if (rounds == kRoundsInARow) {
      hand_over();
      break;
    }
    // The holder looks for doorbells when it is done.
    if (round(caller, began, moved) == Round::kBusy) {
      if (rounds == 0 && caller == Caller::kPolling) note_poll(monotonic_now());
      if (rounds == 0) return std::nullopt;
      break;
    }
    ++rounds;
  } while (datapath_->rung());
  return moved;
}

// Every round is told the time anew, and reads the clock when it has the lock: time never goes backwards, nor stands
// still while others keep ringing. `began`: what it read, if it came so far.
Shard::Round Shard::round(Caller caller, Time& began, Datapath::Moved& moved) {
  // In this order: whoever it was that waited looks for doorbells after that.
  if (progress_.setup_waits()) {
    made_way_.store(true, std::memory_order_relaxed);
    return Round::kBusy;
  }
  const std::unique_lock holding(lock_, std::try_to_lock);
  if (!holding) return Round::kBusy;
  if (datapath_->wire() == nullptr) return Round::kIdle;  // before the first QP
  const Time now = began = monotonic_now();
  if (caller == Caller::kPolling) {
    note_poll(now);
    if (progress_.attendance().is_left()) progress_.attendance().leave(false);
  }
  if (caller != Caller::kBackground) memory::keep_faults_unblocked(now);
  Datapath::Moved here;
  iterate(caller, now, here);
  // That took long, and the thread was here all the while.
  if (caller < Caller::kWaiting && here.many()) note_poll(monotonic_now());
  moved += here;
  return here ? Round::kMoved : Round::kIdle;
}

// With the lock held. Out of memory: what this round left undone is left to later ones, or lost as on a wire.
void Shard::iterate(Caller caller, Time now, Datapath::Moved& moved) {
  try {
    moved += datapath_->iterate(caller, now);
    // This may be the last that the program does before it sleeps.
    if (caller == Caller::kPosting && progress_.attendance().is_left()) datapath_->leave_nothing(now);
  } catch (const std::bad_alloc&) {
  }
  if (caller < Caller::kWaiting) wake_if_needed(caller, now);
}

// This thread has done its share. The background thread clears the flag before it looks for doorbells.
void Shard::hand_over() {
  if (handed_over_.exchange(true, std::memory_order_seq_cst)) return;
  if (background_.load(std::memory_order_seq_cst) != Background::kRunning) progress_.kick();
}

void Shard::hand_over_to_sleep() {
  sleep_expected_.store(true, std::memory_order_seq_cst);
  hand_over();
}

void Shard::expect_sleep() {
  if (sleep_expected_.exchange(true, std::memory_order_seq_cst)) return;
  if (background_.load(std::memory_order_seq_cst) == Background::kDeferring) progress_.kick();
}

// With the lock held. A deferring thread looks by itself soon, and polling goes on meanwhile; but who relies on a
// program that may sleep is woken.
void Shard::wake_if_needed(Caller caller, Time now) {
  if (datapath_->wire() == nullptr) return;
  if (progress_.shard_count() > 1 && datapath_->sent_to_others()) progress_.wake_others(*this);
  const Background state = background_.load(std::memory_order_seq_cst);
  if (state == Background::kRunning) return;
  if (state == Background::kDeferring) {
    const Attendance& attendance = progress_.attendance();
    if (caller == Caller::kPosting && attendance.is_left() && attendance.lasts(now) && datapath_->unfinished()) wake();
    return;
  }
  const int64_t deadline = datapath_->next_deadline().time_since_epoch().count();
  if (datapath_->unfinished() || deadline < wakes_at_.load(std::memory_order_relaxed)) wake();
}

void Shard::wake() {
  awake();  // one kick is enough
  progress_.kick();
}

// A locked instruction, whatever comes of it: either the packets are seen by the thread that is about to sleep, or it
// is seen here that it sleeps.
void Shard::wake_if_asleep() {
  Background state = Background::kAsleep;
  if (background_.compare_exchange_strong(state, Background::kRunning, std::memory_order_seq_cst)) progress_.kick();
}

std::optional<Datapath::Moved> Shard::serve_inline() {
  const std::optional<Datapath::Moved> moved = rounds(Caller::kAttending);
  note_poll(monotonic_now());
  return moved;
}

Shard::Left Shard::leave(std::vector<pollfd>& descriptors, std::optional<uint32_t>& setups) {
  const CallerState kept;
  std::unique_lock holding(lock_, std::try_to_lock);
  if (!holding) return Left::kBusy;
  // Who has left this to the holder may not have seen what has come: where the program polls edge-triggered, nothing
  // tells of that again. (Nobody else takes the flag down but who sees to it: who has failed to lock since then has
  // left it to who holds the lock now.)
  if (left_to_holder_.load(std::memory_order_relaxed)) {
    left_to_holder_.store(false, std::memory_order_seq_cst);
    return Left::kMore;
  }
  io::PacketIo* const wire = datapath_->wire();
  if (wire == nullptr) return Left::kDone;  // before the first QP, which is a set-up
  if (datapath_->unfinished() || !wire->prepare_to_wait()) return Left::kMore;
  const Attendance& attendance = progress_.attendance();
  setups = attendance.setups();
  if (attendance.has_all(*setups)) {
    setups.reset();
  } else {
    const std::span<const pollfd> all = wire->wait_descriptors();
    descriptors.assign(all.begin(), all.end());
  }
  holding.unlock();
  // Who found the lock taken has left its doorbells to its holder, or this.
  const bool more = datapath_->rung() || left_to_holder_.load(std::memory_order_seq_cst);
  return more ? Left::kMore : Left::kDone;
}

bool Shard::leave_to_holder() {
  left_to_holder_.store(true, std::memory_order_seq_cst);
  const std::unique_lock holding(lock_, std::try_to_lock);
  return !holding;
}

void Shard::look_after_leavers() {
  if (left_to_holder_.load(std::memory_order_seq_cst)) progress_.leave_for_others();
}

void Shard::serve() {
  const CallerState kept;
  if (sleep_expected_.load(std::memory_order_relaxed)) sleep_expected_.store(false, std::memory_order_seq_cst);
  Time began{};
  iterate_as_watcher(Caller::kWaiting, began);
  look_after_leavers();
}

void Shard::note_poll(Time now) {
  if (now - polled_at() >= kPollNoted) {
    polled_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    polled_by_.store(this_thread(), std::memory_order_relaxed);
  }
}

bool Shard::attended_by_others(Time now) const {
  return now - polled_at() < WaitPolicy::kAttended && polled_by_.load(std::memory_order_relaxed) != this_thread();
}

// --- set-up calls ---------------------------------------------------------------------------------------------------

void Shard::unlock() {
  lock_.unlock();
  if (left_to_holder_.load(std::memory_order_seq_cst)) hand_over_to_sleep();
}

void Shard::begin_setup() {
  try {
    datapath_->flush();
  } catch (const std::bad_alloc&) {  // what could not leave goes on waiting
  }
}

void Shard::end_setup() {
  datapath_->completions().publish();
  if (!progress_.started()) return;
  if (made_way_.exchange(false, std::memory_order_relaxed) && datapath_->wire() != nullptr) {
    Datapath::Moved moved;
    iterate(Caller::kPolling, monotonic_now(), moved);
  } else {
    wake_if_needed(Caller::kPolling, monotonic_now());
  }
}

// --- the background thread ------------------------------------------------------------------------------------------

WaitPolicy::Wait Shard::turn(Time looked, bool needed) {
  WaitPolicy::Turn turn;
  progress_.attendance().tidy(looked);
  // The program has just been there: a round would only keep it from its own.
  const bool left_to_it =
      handed_over_.load(std::memory_order_relaxed) || sleep_expected_.load(std::memory_order_relaxed);
  if (!needed && !left_to_it && policy_.relies(looked) && progress_.attendance().lasts(looked) &&
      looked - polled_at() < WaitPolicy::kAttended) {
    return WaitPolicy::Wait::kDefer;
  }
  turn.polled_before = polled_at();
  turn.round = iterate_as_watcher(Caller::kBackground, turn.began);
  look_after_leavers();
  // While the thread spins, the clock is read once a turn: to find nothing takes no time that would matter.
  const bool known = turn.began != Time{};
  turn.ended = known && turn.round == Round::kIdle ? turn.began : monotonic_now();
  if (!known) turn.began = turn.ended;
  turn.polled = polled_at();
  turn.looked = looked;
  turn.attended = progress_.attendance().lasts(turn.ended);
  turn.sleep_expected = sleep_expected_.load(std::memory_order_relaxed) && sleep_expected_.exchange(false);
  turn.has_spare_cpu = has_spare_cpu;
  return policy_.after(turn);
}

// `began`: when the first of its rounds did, if any.
Shard::Round Shard::iterate_as_watcher(Caller caller, Time& began) {
  if (handed_over_.load(std::memory_order_relaxed)) handed_over_.store(false, std::memory_order_seq_cst);
  Datapath::Moved moved;
  int rounds = 0;
  do {
    if (rounds++ == kRoundsInARow) {
      handed_over_.store(true, std::memory_order_relaxed);  // to the next turn, which comes without a wait
      break;
    }
    Time now{};
    const Round round_ended = round(caller, now, moved);
    if (rounds == 1) began = now;
    if (round_ended == Round::kBusy) return moved ? Round::kMoved : Round::kBusy;
  } while (datapath_->rung());
  // Only runs of rounds that receive and send nothing count.
  if (moved) receive_only_rounds_ = moved.sent == 0 ? receive_only_rounds_ + 1 : 0;
  return moved ? Round::kMoved : Round::kIdle;
}

bool Shard::streaming() const {
  return receive_only_rounds_ >= kStreamRounds;
}

bool Shard::doze() {
  background_.store(Background::kDeferring, std::memory_order_seq_cst);
  return !sleep_expected_.load(std::memory_order_seq_cst) && !handed_over_.load(std::memory_order_seq_cst);
}

std::optional<Duration> Shard::sleep(std::vector<pollfd>& descriptors) {
  std::unique_lock holding(lock_, std::try_to_lock);
  if (!holding) return doze() ? Progress::kBrief : Duration{};
  io::PacketIo* const wire = datapath_->wire();  // null before the first QP
  // What waits for the packet I/O is tried again soon, and keeps nobody awake meanwhile.
  const bool pressed = wire != nullptr && datapath_->backpressured();
  const bool idle = wire == nullptr || ((pressed || !datapath_->unfinished()) && wire->prepare_to_wait());
  pressure_ = pressed ? std::clamp(2 * pressure_, kMinPressure, kMaxPressure) : Duration{};
  if (!idle) return std::nullopt;
  const Time deadline = datapath_->next_deadline();
  if (wire != nullptr) {
    for (pollfd descriptor : wire->wait_descriptors()) {
      if (!pressed) descriptor.events = POLLIN;
      descriptors.push_back(descriptor);
    }
  }
  wakes_at_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
  background_.store(pressed ? Background::kDeferring : Background::kAsleep, std::memory_order_seq_cst);
  const bool arrived = datapath_->looped();  // from other shards, meanwhile
  holding.unlock();
  if (!pressed) progress_.attendance().stop();  // after the state: who claims later sees that it sleeps
  // Doorbells that were left to this thread may have been answered by others: then only the flag tells, which whoever
  // leaves some next finds raised already.
  const bool left = handed_over_.load(std::memory_order_seq_cst) || left_to_holder_.load(std::memory_order_seq_cst);
  if (arrived || datapath_->rung() || left) return std::nullopt;
  const Duration time = deadline == kNever ? Duration::max() : std::max(Duration{}, deadline - monotonic_now());
  return pressed ? std::min(time, pressure_) : time;
}

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// A shard of a device: a datapath, and the lock under which one thread at a time drives it. Application threads that
// poll or post drive it inline, under a lock that they only try; the background thread does when nobody else does
// (progress.h). Shards do not stop each other: they share only what changes while all of them are locked.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <poll.h>
#include <vector>

#include "base/caller_state.h"
#include "base/lock_watch.h"
#include "engine/datapath/datapath.h"
#include "engine/datapath/spin_habit.h"
#include "engine/datapath/wait_policy.h"

namespace uroce::engine {

class Progress;

class Shard {
 public:
  // `datapath` is this shard's alone from now on.
  Shard(Progress& progress, std::unique_ptr<Datapath> datapath);

  // --- application threads ----------------------------------------------------------------------------------------
  // One round inline, unless somebody else is at it, and a few more if doorbells rang meanwhile. No cancellation point;
  // keeps errno. After a post it only sends. Then arrivals and timers are left to who polls, and a thread that only
  // posts is none of these: the background thread does not rely on it.
  void after_post() {
    spin_habit.posted();
    rounds(Caller::kPosting);
    look_after_leavers();
  }
  void poll() {
    rounds(Caller::kPolling);
    look_after_leavers();
  }
  // Before the process ends, perhaps in a signal handler: for others, which takes a mutex, the background thread is
  // woken.
  void poll_last() { rounds(Caller::kPolling); }
  // The caller is about to sleep: the background thread must not rely on it.
  void expect_sleep();
  // Likewise, and there is something to do for it.
  void hand_over_to_sleep();
  // A few rounds of a program that waits for packets by their descriptors; it may do so when leave() says kDone.
  // Nothing: another thread is at it.
  std::optional<Datapath::Moved> serve_inline();
  enum class Left : uint8_t {
    kDone,  // from now on the descriptors tell of packets
    kMore,  // there is more to do; or no room for what is to be sent
    kBusy,  // another thread is at it
  };
  // `descriptors`: what they are, as of `setups` (attendance.h), where the program's set has not got them all. Throws
  // std::bad_alloc.
  Left leave(std::vector<pollfd>& descriptors, std::optional<uint32_t>& setups);
  // Who holds the lock takes what has come, and leaves for the caller, when it has done what it is at. False: nobody
  // holds it now.
  bool leave_to_holder();
  // Behind whatever took the lock, unless leave() comes next.
  void look_after_leavers();
  // A few rounds of a thread that watches the packet I/O while it waits for an event; then sleep() or doze().
  void serve();

  // --- set-up calls: Progress::Guard ------------------------------------------------------------------------------
  void lock() { lock_.lock(); }
  bool try_lock() { return lock_.try_lock(); }
  void unlock();
  // With the lock held: sends what waits for company; runs the round that others left to the caller.
  void begin_setup();
  void end_setup();

  // --- the thread that watches the packet I/O (progress.h) ----------------------------------------------------------
  // The background thread's: a few rounds, and how to wait after them. `looked`: when it last looked at its
  // descriptors. `needed`: somebody has woken it.
  WaitPolicy::Wait turn(Time looked, bool needed);
  // Before a wait on a timer only, while application threads take the packets. False: do not wait, somebody needs the
  // thread.
  bool doze();
  // Before a wait until packets come, a timer expires, or somebody needs us: adds what to wait for to `descriptors`,
  // and says how long at most. Nothing: do not wait.
  std::optional<Duration> sleep(std::vector<pollfd>& descriptors);
  // The wait has ended.
  void awake() { background_.store(Background::kRunning, std::memory_order_seq_cst); }
  // Threads other than the caller have polled of late.
  bool attended_by_others(Time now) const;
  // The last rounds that moved packets only received some: a stream of WRITEs, say.
  bool streaming() const;

  Datapath& datapath() { return *datapath_; }
  const Datapath& datapath() const { return *datapath_; }
  // Another shard has sent packets to this one. Any thread.
  void wake_if_asleep();

 private:
  using Caller = Datapath::Caller;
  using Round = WaitPolicy::Round;
  enum class Background : uint8_t { kRunning, kDeferring, kAsleep };

  std::optional<Datapath::Moved> rounds(Caller caller);
  Round round(Caller caller, Time& began, Datapath::Moved& moved);
  void iterate(Caller caller, Time now, Datapath::Moved& moved);
  Round iterate_as_watcher(Caller caller, Time& began);
  void hand_over();
  void wake_if_needed(Caller caller, Time now);
  void wake();
  bool asleep() const { return background_.load(std::memory_order_seq_cst) == Background::kAsleep; }
  Time polled_at() const { return Time(Duration(polled_at_.load(std::memory_order_relaxed))); }
  void note_poll(Time now);

  Progress& progress_;
  const std::unique_ptr<Datapath> datapath_;

  // Cache lines: the lock's is written twice a round. The next one is read in every round and seldom written.
  alignas(64) ShardLock lock_;
  alignas(64) std::atomic<bool> made_way_{false};  // a round was left to a set-up call
  std::atomic<bool> handed_over_{false};           // doorbells were left to the background thread
  std::atomic<int64_t> polled_at_{0};  // ns; when an application thread polled last, or up to kPollNoted earlier
  std::atomic<const void*> polled_by_{nullptr};  // the thread, by the address of something of its own
  std::atomic<Background> background_{Background::kRunning};
  std::atomic<int64_t> wakes_at_{0};  // ns; when a sleeping background thread will look at timers
  std::atomic<bool> sleep_expected_{false};
  std::atomic<bool> left_to_holder_{false};  // leave(), by threads that have found the lock taken
  alignas(64) WaitPolicy policy_;            // the background thread's, as what follows
  uint32_t receive_only_rounds_ = 0;         // in a row
  Duration pressure_{};                      // how long it waited for room last
};

}  // namespace uroce::engine

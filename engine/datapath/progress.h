// Who drives the datapath, and when (architecture.md, decision 2).
//
// Application threads that poll run it inline, under a lock that they only try. A background thread takes over when
// nobody does. It has three ways to wait (wait_policy.h says when):
//   spinning   shortly after it moved packets: a passive target answers fast;
//   asleep     on the I/O descriptors, netlink and the next deadline: costs nothing while nothing happens;
//   deferring  on a timer only, while application threads have shown that they take the packets themselves: waking up
//              for every packet would only disturb them.
// No wake-up is lost: the lock's holder looks for doorbells again after letting go, and an application thread that
// leaves work behind wakes the background thread if it is asleep. An application thread does no more than a few rounds
// for others, though: what rings then is handed over to the background thread.
//
// Set-up calls go first. Who would run a round while one waits leaves the round to it, so neither starves: between two
// set-up calls there is one round.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/caller_state.h"
#include "engine/datapath/datapath.h"
#include "engine/datapath/wait_policy.h"

namespace uroce::engine {

class Progress {
 public:
  // `network_descriptor` is slept on as well. `look_at_network` is called after every sleep, without the lock, and told
  // whether the descriptor is readable; it returns when to call it again at the latest.
  Progress(Datapath& datapath, int network_descriptor, std::function<Time(bool readable)> look_at_network);
  ~Progress();

  // Starts the background thread, if it is not running yet. Before the datapath has its packet I/O, it watches the
  // network only; call again when it has it. 0 or an errno value.
  int start();
  // Ends the background thread for good; start() has returned. What rings from then on is moved by who polls.
  void stop();
  // Whether who holds the lock gives it back soon. Not if that is a thread in which a signal handler has called exit().
  bool lock_comes_free();

  // --- application threads ----------------------------------------------------------------------------------------
  // One round inline, unless somebody else is at it, and a few more if doorbells rang meanwhile. No cancellation point;
  // keeps errno. After a post it only sends. Then arrivals and timers are left to who polls, and a thread that only
  // posts is none of these: the background thread does not rely on it.
  void after_post() { rounds(Caller::kPosting); }
  void poll() { rounds(Caller::kPolling); }
  // The caller is about to sleep: the background thread must not rely on it.
  void expect_sleep();

  // The background thread should look around soon: something it watches has changed.
  void wake() {
    if (started_) kick();
  }

  // Exclusive use of the datapath for set-up calls (create, modify, destroy, registration). What was posted before them
  // and waits for company leaves first. Runs the round that others left to it and wakes the background thread
  // afterwards if that left work. The thread cannot be cancelled meanwhile.
  class Guard {
   public:
    explicit Guard(Progress& progress);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const CallerState caller_;
    Progress& progress_;
  };

 private:
  using Caller = Datapath::Caller;
  enum class Background : uint8_t { kRunning, kDeferring, kAsleep };
  using Round = WaitPolicy::Round;

  void rounds(Caller caller);
  Round round(Caller caller, Datapath::Moved& moved);
  void iterate(Caller caller, Time now, Datapath::Moved& moved);
  void hand_over();
  void run();
  void turn(WaitPolicy& policy);
  Time polled_at() const { return Time(Duration(polled_at_.load(std::memory_order_relaxed))); }
  void note_poll(Time now);
  Round iterate_in_background();
  void pause() const;
  void doze(Duration time);
  void sleep();
  void wait(Duration time);
  pollfd network() const;
  void wake_if_needed();
  void kick();

  Datapath& datapath_;
  const int network_descriptor_;
  const std::function<Time(bool)> look_at_network_;

  // Cache lines: the lock's is written twice a round. The next one is read in every round and seldom written.
  alignas(64) OrderedSpinLock lock_;
  alignas(64) std::atomic<int> waiting_{0};  // set-up calls that wait for the lock
  std::atomic<bool> made_way_{false};        // a round was left to one of them
  std::atomic<bool> handed_over_{false};     // doorbells were left to the background thread
  std::atomic<int64_t> polled_at_{0};        // ns; when an application thread polled last, or up to kPollNoted earlier
  std::atomic<Background> background_{Background::kRunning};
  std::atomic<int64_t> wakes_at_{0};  // ns; when a sleeping background thread will look at timers
  std::atomic<bool> sleep_expected_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> started_{false};
  int kick_descriptor_ = -1;
  alignas(64) uint32_t receive_only_rounds_ = 0;  // the background thread's; in a row
  Time waited_at_{};                              // the background thread's; when it last looked at its descriptors
  Duration pressure_{};                           // the background thread's; how long it waited for room last
  bool look_again_ = false;          // the background thread's; there was no memory for what the network had to say
  Time look_again_at_ = kNever;      // the background thread's; at the network
  Time deaf_until_{};                // the background thread's; to news of the network
  std::vector<pollfd> descriptors_;  // the background thread's, kept to spare allocations
  std::thread thread_;
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// Who drives the datapath, and when (architecture.md, decision 2).
//
// Application threads that poll run it inline, under a lock that they only try. A background thread takes over when
// nobody does. It has three ways to wait (wait_policy.h says when):
//   spinning   shortly after it moved packets: a passive target answers fast;
//   asleep     on the I/O descriptors, netlink and the next deadline: costs nothing while nothing happens;
//   deferring  on a timer only, while application threads have shown that they take the packets themselves: waking up
//              for every packet would only disturb them.
// A thread that waits for an event (ibv_get_cq_event) watches the packet I/O in its place: it runs the rounds and
// sleeps on the descriptors, so that a packet wakes the very thread that it is for. One thread watches at a time. When
// it leaves with its event, nobody watches for up to half a millisecond, in which it mostly comes back; then the
// background thread does again. No wake-up is lost: the lock's holder looks for doorbells again after letting go, and
// an application thread that leaves work behind wakes the background thread if it is asleep. An application thread does
// no more than a few rounds for others, though: what rings then is handed over to the background thread.
//
// A device may have several shards (shard.h), each with a lock and datapath of its own; the background thread looks
// after all of them.
//
// Set-up calls go first, and exclude everybody. Who would run a round while one waits leaves the round to it, so
// neither starves: between two set-up calls there is one round.
//
// progress.cc has the background thread and set-up calls, waiting.cc the application's threads that wait, here or for a
// descriptor.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/caller_state.h"
#include "engine/datapath/attendance.h"
#include "engine/datapath/shard.h"
#include "engine/io/steering.h"
#include "engine/objects/waited.h"

namespace uroce::engine {

class Progress {
 public:
  // How long the background thread keeps away from a core whose application thread holds the lock.
  static constexpr Duration kBrief = std::chrono::microseconds(50);
  // While applications take the packets: how soon the background thread notices that they stopped.
  static constexpr Duration kDefer = std::chrono::microseconds(500);

  // `datapath`: of the first shard. `network_descriptor` is slept on as well. `look_at_network` is called after every
  // sleep, without the lock, and told whether the descriptor is readable; it returns when to call it again at the
  // latest.
  Progress(std::unique_ptr<Datapath> datapath, int network_descriptor,
           std::function<Time(bool readable)> look_at_network);
  ~Progress();

  // One more shard; there are io::kMaxShards at most. The caller holds the Guard.
  void add(std::unique_ptr<Datapath> datapath);
  // Any thread. They stay as long as this object.
  uint32_t shard_count() const { return count_.load(std::memory_order_acquire); }
  Shard& shard(uint32_t i) { return *shards_[i]; }
  const Shard& shard(uint32_t i) const { return *shards_[i]; }

  // Starts the background thread, if it is not running yet. Before the datapaths have their packet I/O, it watches the
  // network only; call again when they have it. 0 or an errno value.
  int start();
  bool started() const { return started_; }
  // Ends the background thread for good; start() has returned. What rings from then on is moved by who polls.
  void stop();
  // Whether who holds a lock gives it back soon. Not if that is a thread in which a signal handler has called exit().
  bool locks_come_free();
  // The process ends: ACKs that QPs owe leave, of shards whose locks come free. Allocates nothing.
  void settle_acks();

  // The background thread should look around soon: something it watches has changed, the packet I/O perhaps.
  void wake();

  // --- a thread that waits for an event
  // Engine::wait_for_event(). Meanwhile the calling thread watches the packet I/O, unless another one does.
  Waited wait_for_event(const LookForEvent& look, int fd);
  // The same where there is no packet I/O to be watched.
  static Waited wait_without_packets(int fd);
  // The program takes the packets itself, waiting so or by a set that it polls: nobody has to watch for who is about to
  // wait.
  bool has_waiters() const;

  // --- a program that polls the descriptor of a channel (attendance.h)
  // Engine::claim_packets().
  bool claim(const std::shared_ptr<PollSet>& set);
  void release(const PollSet& set);
  // What Attendance::note_request(), note_answer() and note_one_by_one() are told.
  void note_request(const std::shared_ptr<PollSet>& set);
  void note_answer(const PollSet& set);
  void note_one_by_one();
  // After a set-up, and before the descriptors are closed that the packet I/O has no more: an epoll set tells of what
  // is closed for as long as something else refers to it, rings in memory for example.
  void forget_descriptors() { attendance_.forget_descriptors(); }
  // A few rounds of a thread that waits, though not here; more as long as a stream of packets comes. True: there is an
  // event. `woken`: the set may have woken the program.
  bool serve_stream(const LookForEvent& look, bool woken);
  // The program is about to wait, or only `waits` perhaps: looks for packets for as long as that is worth while
  // (spin_habit.h). True: there is an event.
  bool linger(const LookForEvent& look, bool waits);
  // What the calling thread has waited for has come.
  static void end_wait();
  // After claim(): the program is about to wait for its sets, or for this one, if it has asked it in vain. What is left
  // to do is the background thread's.
  void leave(const std::shared_ptr<PollSet>& set, bool asked_in_vain);

  // Exclusive use of all shards for set-up calls (create, modify, destroy, registration). What was posted before them
  // and waits for company leaves first. Runs the rounds that others left to it and wakes the background thread
  // afterwards if that left work. The thread cannot be cancelled meanwhile.
  class Guard {
   public:
    explicit Guard(Progress& progress);
    ~Guard();
    // The packet I/O keeps its descriptors. (For calls that are made for each message.)
    void keep_descriptors() { keeps_descriptors_ = true; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const CallerState caller_;
    Progress& progress_;
    bool keeps_descriptors_ = false;
  };

  // --- for shards ---------------------------------------------------------------------------------------------------
  bool setup_waits() const { return waiting_.load(std::memory_order_seq_cst) > 0; }
  Attendance& attendance() { return attendance_; }
  // leave(), for threads that have left it to the calling one.
  void leave_for_others();
  // Ends the wait of whoever watches.
  void kick();
  // `from` has sent packets to another shard.
  void wake_others(const Shard& from);

 private:
  // While threads wait for events in the place of the background thread: after so long without one it is off.
  static constexpr Duration kOff = std::chrono::milliseconds(100);
  // How long to wait where there is no memory for the list of descriptors.
  static constexpr Duration kNoMemory = std::chrono::milliseconds(1);
  // How long to wait between two looks at the ring while a stream comes in (about a microsecond).
  static constexpr int kStreamPauses = 60;

  static bool lock_soon(Shard& shard, Time limit);
  bool leave_nothing();
  bool try_to_leave_nothing();
  template <class F>
  void for_each_shard(F&& f) {
    for (uint32_t i = 0; i < shard_count(); ++i) f(*shards_[i]);
  }
  enum class Watcher : uint8_t { kNobody, kBackground, kApplication };
  class Watching;
  class Candidate;
  void run();
  void turn();
  bool kick_application();
  bool takes_watch();
  void leave_watch();
  void stand_by();
  void forget_jump();
  Waited watch(const LookForEvent& look, int fd);
  std::optional<Duration> prepare_to_sleep();
  static void pause(int pauses);
  void wait(Duration time);
  pollfd network();

  const int network_descriptor_;
  const std::function<Time(bool)> look_at_network_;

  alignas(64) std::atomic<int> waiting_{0};  // set-up calls that wait for the locks
  std::array<std::unique_ptr<Shard>, io::kMaxShards> shards_;
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> started_{false};
  int kick_descriptor_ = -1;     // of the background thread
  int watcher_descriptor_ = -1;  // of an application thread that watches
  int offer_descriptor_ = -1;    // of those that would watch: nobody does
  alignas(64) Attendance attendance_;
  // Only who watches calls what Shard has for that, and sleeps on the packet I/O.
  alignas(64) std::atomic<Watcher> watcher_{Watcher::kNobody};
  std::atomic<const void*> watching_thread_{nullptr};  // the application's, by the address of something of its own
  std::atomic<bool> watcher_kicked_{false};            // since it last looked
  std::atomic<int> candidates_{0};                     // threads that wait for an event while another one watches
  std::atomic<Time> left_at_{Time{}};  // when such a thread last left, or the background thread did for one
  std::atomic<bool> offered_{false};   // the watch, to candidates, and nobody has taken it so far
  std::atomic<bool> off_{false};       // the background thread sleeps until it is kicked, or the network has news
  std::vector<pollfd> watched_;        // of the application thread that watches; kept to spare allocations
  // The background thread's:
  alignas(64) Time waited_at_{};     // when it last looked at its descriptors
  bool look_again_ = false;          // there was no memory for what the network had to say
  Time look_again_at_ = kNever;      // at the network
  Time deaf_until_{};                // to news of the network
  bool kicked_ = false;              // its last wait has ended so
  std::vector<pollfd> descriptors_;  // kept to spare allocations
  std::thread thread_;
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// A program that polls the descriptor of a completion channel (O_NONBLOCK, in epoll(7) beside its sockets): packets
// make the descriptor readable, and the program's own calls move them. So no thread of ours stands between a packet and
// the program, and none that it does not have anyway is woken. Where the packets were none of an armed queue, the
// program is told of an event all the same (Engine::report_early): it finds that queue empty, for which
// ibv_get_cq_event(3) prepares programs; EAGAIN behind a readable descriptor is an error to some. Those that take all
// events whenever there is one get EAGAIN, and are known by having borne it (objects/poll_set.h).
//
// The descriptor is an epoll set. One set of a device has the packet I/O's descriptors in it: to wake all of a
// program's channels for each packet would be dear, and where one thread polls them all one is enough.
//
// Which one: a program that comes only where there is an event takes what has come, whichever it is that is readable;
// it passes to another one when it has not been looked after for a while. But one that asks before there is an event
// may wait where a descriptor is readable, for what that channel's peer owes it, with no regard to the others
// (libvalkey's valkeyRdmaReadZC()). There it is a set in which an answer is due: a request was posted, and nothing has
// come since that could be the answer; of these the one with the oldest request, which is answered first, mostly. Or
// the one that has just been asked in vain. If none is due, our thread takes the descriptors out.
//
// Nobody knows when the program sleeps, or whether it polls the set at all. So the background thread looks every half
// millisecond as long as the program has been there lately (wait_policy.h); later it sleeps on the packet I/O as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <poll.h>
#include <span>
#include <vector>

#include "base/time.h"
#include "engine/objects/poll_set.h"

namespace uroce::engine {

class Attendance {
 public:
  // How long the program is relied on after it has looked last.
  static constexpr Duration kLasts = std::chrono::milliseconds(100);

  // --- any thread
  // The program looks after the channel of `set`. True: another one of its sets tells of packets, or this one, if it is
  // used.
  bool claim(const std::shared_ptr<PollSet>& set, Time now);
  // It ends, or is not polled any more.
  void release(const PollSet& set);
  // The program has looked, and packets or an event were there. `woken`: the set may have brought it.
  void note(bool found, bool woken, Time now);
  // The program uses several sets. Only then the next four need be called, and they concern only sets that bear to have
  // no event.
  bool has_several() const { return several_.load(std::memory_order_relaxed); }
  // A request has been posted whose answer, if there will be one, shows in `set`.
  void note_request(const std::shared_ptr<PollSet>& set, Time now) {
    if (set->bears_no_event() && !set->answer_is_due(now)) add_request(set, now);
  }
  // What has come may be the answer.
  void note_answer(const PollSet& set) {
    if (set.requested_at() != Time{}) remove_request(set);
  }
  // After claim(). The program may sleep next: for any of its sets, or for this one alone, if it has asked in vain.
  void note_sleep(const std::shared_ptr<PollSet>& set, bool asked_in_vain, Time now) {
    if (set->bears_no_event()) choose(set, asked_in_vain, now);
  }
  // By a thread of ours, which looks after what the program does not: as long as this is true it must not sleep without
  // stop(), and tidy() now and then.
  bool is_to_be_tidied() const { return has_several() && held_bears_.load(std::memory_order_relaxed); }
  void tidy(Time now) {
    if (is_to_be_tidied()) stop_unless_due(now);
  }
  void stop();
  // The program waits for one of its channels while there are events of others (libvalkey's valkeyRdmaReadZC() does):
  // to be woken by packets that are for others keeps it from those. Not again and again: no set tells of packets for a
  // while, the longer the more often.
  void note_one_by_one(Time now);
  // The program is there to take packets.
  bool lasts(Time now) const {
    return held_.load(std::memory_order_relaxed) != nullptr && now - at_.load(std::memory_order_relaxed) < kLasts;
  }
  // It has taken all that there was, and may be asleep by now.
  bool is_left() const { return left_.load(std::memory_order_relaxed); }
  void leave(bool left) { left_.store(left, std::memory_order_relaxed); }

  // The packet I/O may have other descriptors from now on.
  void note_setup() { setups_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t setups() const { return setups_.load(std::memory_order_relaxed); }
  // They are not in a set until they are put() there anew.
  void forget_descriptors();
  // The set that tells of packets has the descriptors that there were at setups().
  bool has_all(uint32_t setups) const { return has_all_of_.load(std::memory_order_relaxed) == setups; }
  // From now on it has these, which were there at `setups`. False: it cannot have all. Throws std::bad_alloc.
  bool put(std::span<const pollfd> descriptors, uint32_t setups);

 private:
  static constexpr Duration kShortestPause = std::chrono::milliseconds(100);
  static constexpr Duration kFirstPauseOfOneByOne = std::chrono::seconds(1);

  void hold(std::shared_ptr<PollSet> set);
  bool hand_to(const std::shared_ptr<PollSet>& set);
  void pause_until(Time end);
  void add_request(const std::shared_ptr<PollSet>& set, Time now);
  void remove_request(const PollSet& set);
  void forget_request(const PollSet& set);
  void choose(const std::shared_ptr<PollSet>& set, bool asked_in_vain, Time now);
  void stop_unless_due(Time now);

  std::atomic<const PollSet*> held_{nullptr};  // the set that tells of packets
  std::atomic<Time> at_{Time{}};               // when the program has looked last
  std::atomic<Time> held_at_{Time{}};          // when it has looked after this set last
  std::atomic<const void*> held_by_{nullptr};  // the thread that has done so
  std::atomic<bool> held_bears_{false};        // PollSet::bears_no_event()
  std::atomic<bool> left_{false};
  // Looks in a row that found nothing: others take the packets, or the descriptors tell of none. Then no set tells of
  // packets for a while.
  std::atomic<uint32_t> in_vain_{0}, one_by_one_{0};
  std::atomic<Time> paused_until_{Time{}}, one_by_one_since_{Time{}};
  std::atomic<Duration> pause_{kShortestPause}, pause_of_one_by_one_{kFirstPauseOfOneByOne};
  std::atomic<uint32_t> setups_{1}, has_all_of_{0};
  std::atomic<bool> several_{false};  // sets are used

  // Taken under no lock of a shard, but perhaps under one of the application's threads (of a queue that it polls, of a
  // channel's queues). Nothing but a ForkGuard is taken under it. What follows is under it.
  std::mutex changes_;
  uint32_t put_at_ = 0;                          // setups() of the last put()
  std::vector<pollfd> descriptors_;              // of the last put()
  std::shared_ptr<PollSet> held_set_;            // held_
  std::list<std::shared_ptr<PollSet>> answers_;  // sets in which answers are due; the one of the oldest request first
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// The descriptor of a completion channel as the engine needs it: an epoll set that the program polls, and in which
// packets may show as well as events (datapath/attendance.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <poll.h>
#include <span>
#include <vector>

#include "base/time.h"

namespace uroce::engine {

class PollSet {
 public:
  // `application_fd`: of the set, as the application has it when open() looks. `member`: what the set was made for and
  // is always in it.
  PollSet(const int& application_fd, int member) : application_fd_(application_fd), member_(member) {}
  ~PollSet();
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  // --- any thread
  // The program has taken an event of it. Only a program that does so again and again is set up for wake-ups without an
  // event of its own: UCX polls its descriptors before it has finished making what they are for, and relies on it that
  // nobody knows the queue pair yet.
  void note_event() {
    if (!is_used()) events_.fetch_add(1, std::memory_order_relaxed);
  }
  bool is_used() const { return events_.load(std::memory_order_relaxed) >= kEventsOfUse; }
  // The program has asked for an event where there was none, and has borne EAGAIN: until the set is used, it is told of
  // nothing but events, so hardware would have said so, too. Who takes all events whenever there is one has done that
  // with the first; who takes one each time never does.
  void note_no_event() {
    if (!is_used()) bears_no_event_.store(true, std::memory_order_relaxed);
  }
  bool bears_no_event() const { return bears_no_event_.load(std::memory_order_relaxed); }
  // When the request was posted whose answer is due here (datapath/attendance.h), if one is.
  Time requested_at() const { return requested_at_.load(std::memory_order_relaxed); }
  void set_requested_at(Time time) { requested_at_.store(time, std::memory_order_relaxed); }
  // An answer that has not come for so long may never come.
  bool answer_is_due(Time now) const {
    const Time at = requested_at();
    return at != Time{} && now - at < kAnswerIsDue;
  }
  // Packets may have woken the program: put() has been called.
  bool has_told_of_packets() const { return has_told_of_packets_.load(std::memory_order_relaxed); }

  // --- one thread at a time
  // Makes a descriptor of its own, if it has none. False: what the application has there is another file by now, or
  // there are no descriptors left.
  bool open();
  // After open(): these and no others are in the set as well. False: not all of them can be. Throws std::bad_alloc.
  bool put(std::span<const pollfd> packet_io);
  void take_out();

 private:
  static constexpr uint32_t kEventsOfUse = 16;
  static constexpr Duration kAnswerIsDue = std::chrono::milliseconds(100);

  std::atomic<uint32_t> events_{0};
  std::atomic<bool> bears_no_event_{false}, has_told_of_packets_{false};
  std::atomic<Time> requested_at_{Time{}};
  const int& application_fd_;
  const int member_;
  int set_ = -1;
  std::vector<int> packet_io_;
};

}  // namespace uroce::engine

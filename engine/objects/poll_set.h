// SPDX-License-Identifier: BSD-2-Clause
// The descriptor of a completion channel as the engine needs it: an epoll set that the program polls, and in which
// packets may show as well as events (datapath/attendance.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <poll.h>
#include <span>
#include <vector>

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
  // Attendance::moves() when the program left, while this set told of packets.
  void note_left(uint64_t moves) { left_at_.store(moves, std::memory_order_relaxed); }
  // Something has moved since then that may have woken the program. Once for each time that it left.
  bool may_have_woken(uint64_t moves) {
    const uint64_t left_at = left_at_.load(std::memory_order_relaxed);
    return left_at != kNever && left_at_.exchange(moves, std::memory_order_relaxed) != moves;
  }
  // The application would find it so, once it has left it like that.
  bool is_readable() const;

  // --- one thread at a time
  // Makes a descriptor of its own, if it has none. False: what the application has there is another file by now, or
  // there are no descriptors left.
  bool open();
  // After open(): these and no others are in the set as well. False: not all of them can be. Throws std::bad_alloc.
  bool put(std::span<const pollfd> packet_io);
  void take_out();

 private:
  static constexpr uint32_t kEventsOfUse = 16;
  static constexpr uint64_t kNever = UINT64_MAX;

  std::atomic<uint32_t> events_{0};
  std::atomic<uint64_t> left_at_{kNever};
  const int& application_fd_;
  const int member_;
  int set_ = -1;
  std::vector<int> packet_io_;
};

}  // namespace uroce::engine

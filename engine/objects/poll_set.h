// SPDX-License-Identifier: BSD-2-Clause
// The descriptor of a completion channel as the engine needs it: an epoll set that the program polls, and in which
// packets may show as well as events (datapath/attendance.h).
#pragma once

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

  // --- one thread at a time
  // Makes a descriptor of its own, if it has none. False: what the application has there is another file by now, or
  // there are no descriptors left.
  bool open();
  // After open(): these and no others are in the set as well. False: not all of them can be. Throws std::bad_alloc.
  bool put(std::span<const pollfd> packet_io);
  void take_out();

 private:
  const int& application_fd_;
  const int member_;
  int set_ = -1;
  std::vector<int> packet_io_;
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// A file descriptor that counts pending events: what comp_channel->fd and async_fd are.
// An eventfd in semaphore mode, so that it can be polled, made non-blocking and dup2()ed like the kernel's uverbs
// files. Used by EventQueue.
#pragma once

namespace uroce::verbs {

class EventDescriptor {
 public:
  EventDescriptor() = default;
  ~EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;

  // Returns 0 or an errno value. `application_fd` belongs to the caller, who may replace or close it: the object writes
  // through a duplicate of its own.
  int open(int& application_fd);

  // Adds one token.
  void signal();
  // Takes a token that nobody has claimed yet. False: there is none.
  bool retract();
  // Takes a token through the descriptor as the application has it now: blocks unless it is O_NONBLOCK. False with
  // errno set: EAGAIN, EINTR, EBADF.
  static bool wait(int application_fd);

 private:
  int fd_ = -1;
};

}  // namespace uroce::verbs

// SPDX-License-Identifier: BSD-2-Clause
// A file descriptor that counts pending events: an eventfd in semaphore mode. async_fd is one, which can be polled,
// made non-blocking and dup2()ed like the kernel's uverbs files. That of a completion channel is an epoll set with one
// in it (objects.h). Used by EventQueue.
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
  // The application has none.
  int open();
  int fd() const { return fd_; }

  // Adds one token.
  void signal();
  // Takes a token that nobody has claimed yet. False: there is none.
  bool retract();
  // Takes a token through the descriptor as the application has it now: blocks unless it is O_NONBLOCK. False with
  // errno set: EAGAIN, EINTR, EBADF.
  static bool wait(int application_fd);

 private:
  int fd_ = -1;
  bool own_ = false;
};

}  // namespace uroce::verbs

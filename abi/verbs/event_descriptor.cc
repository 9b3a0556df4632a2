// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/event_descriptor.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "base/fork.h"
#include "base/set_aside.h"
#include "base/unique_fd.h"

namespace uroce::verbs {

EventDescriptor::~EventDescriptor() {
  ForkGuard().close(fd_);
}

int EventDescriptor::open(int& application_fd) {
  application_fd = -1;
  UniqueFd made(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!made) return errno;
  ForkGuard guard;
  UniqueFd own(::fcntl(made.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) return errno;
  fd_ = set_aside(std::move(own)).release();
  guard.close_in_children(fd_);
  application_fd = made.release();
  return 0;
}

int EventDescriptor::open() {
  ForkGuard guard;
  UniqueFd made(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made) return errno;
  fd_ = set_aside(std::move(made)).release();
  guard.close_in_children(fd_);
  own_ = true;
  return 0;
}

void EventDescriptor::signal() {
  const uint64_t one = 1;
  // Cannot fail: the counter holds 2^64 - 2 tokens.
  [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof(one));
}

bool EventDescriptor::retract() {
  // Non-blocking whatever the application made of the shared open file description. Before Linux 5.8 eventfds cannot be
  // read so: the token stays, and the descriptor is readable once without an event.
  uint64_t token;
  if (own_) return ::read(fd_, &token, sizeof(token)) == static_cast<ssize_t>(sizeof(token));
  const iovec destination{&token, sizeof(token)};
  return ::preadv2(fd_, &destination, 1, -1, RWF_NOWAIT) == static_cast<ssize_t>(sizeof(token));
}

bool EventDescriptor::wait(int application_fd) {
  uint64_t token;
  return ::read(application_fd, &token, sizeof(token)) == static_cast<ssize_t>(sizeof(token));
}

}  // namespace uroce::verbs

#include "verbs_shim/event_descriptor.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/fork.h"

namespace uroce::verbs {

EventDescriptor::~EventDescriptor() {
  ForkGuard().close(fd_);
}

int EventDescriptor::open(int& application_fd) {
  application_fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (application_fd < 0) return errno;
  int error = 0;
  {
    ForkGuard guard;
    fd_ = ::fcntl(application_fd, F_DUPFD_CLOEXEC, 0);
    error = errno;
    guard.close_in_children(fd_);
  }
  if (fd_ >= 0) return 0;
  ::close(application_fd);
  application_fd = -1;
  return error;
}

void EventDescriptor::signal() {
  const uint64_t one = 1;
  // Cannot fail: the counter holds 2^64 - 2 tokens.
  [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof(one));
}

void EventDescriptor::retract() {
  // Non-blocking whatever the application made of the shared open file description.
  uint64_t token;
  const iovec destination{&token, sizeof(token)};
  [[maybe_unused]] const ssize_t count = ::preadv2(fd_, &destination, 1, -1, RWF_NOWAIT);
}

bool EventDescriptor::wait(int application_fd) {
  uint64_t token;
  return ::read(application_fd, &token, sizeof(token)) == static_cast<ssize_t>(sizeof(token));
}

}  // namespace uroce::verbs

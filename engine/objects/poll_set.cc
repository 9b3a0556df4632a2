// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/poll_set.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/epoll.h>
#include <unistd.h>
#include <utility>

#include "base/fork.h"

namespace uroce::engine {

PollSet::~PollSet() {
  if (set_ >= 0) ForkGuard().close(set_);
}

bool PollSet::open() {
  if (set_ >= 0) return true;
  epoll_event event{};  // of no events: it may be another set
  if (epoll_ctl(application_fd_, EPOLL_CTL_ADD, member_, &event) == 0) {
    epoll_ctl(application_fd_, EPOLL_CTL_DEL, member_, nullptr);
    return false;
  }
  if (errno != EEXIST) return false;
  ForkGuard guard;
  const int set = fcntl(application_fd_, F_DUPFD_CLOEXEC, 0);
  if (set < 0) return false;
  try {
    guard.close_in_children(set);
  } catch (const std::bad_alloc&) {
    ::close(set);
    return false;
  }
  set_ = set;
  return true;
}

bool PollSet::put(std::span<const pollfd> packet_io) {
  has_told_of_packets_.store(true, std::memory_order_relaxed);
  std::vector<int> former;
  former.reserve(packet_io.size());
  for (const pollfd& each : packet_io) former.push_back(each.fd);
  std::swap(former, packet_io_);
  // Closed ones have left by themselves.
  for (const int fd : former) {
    if (std::find(packet_io_.begin(), packet_io_.end(), fd) == packet_io_.end())
      epoll_ctl(set_, EPOLL_CTL_DEL, fd, nullptr);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  return std::all_of(packet_io_.begin(), packet_io_.end(),
                     [&](int fd) { return epoll_ctl(set_, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST; });
}

void PollSet::take_out() {
  for (const int fd : packet_io_) epoll_ctl(set_, EPOLL_CTL_DEL, fd, nullptr);
  packet_io_.clear();
}

}  // namespace uroce::engine

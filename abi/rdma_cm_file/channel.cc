// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "base/set_aside.h"
#include "base/unique_fd.h"

namespace uroce::rdma_cm {

int Channel::open(int flags, std::shared_ptr<Channel>& channel, int& fd) {
  std::array<int, 2> ends{-1, -1};
  UniqueFd theirs;
  {
    ForkGuard guard;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return errno;
    theirs.reset(ends[0]);
    UniqueFd ours = set_aside(UniqueFd(ends[1]));
    guard.close_in_children(ours.get());
    channel = std::make_shared<Channel>(ours.release());
  }
  if ((flags & O_CLOEXEC) == 0) fcntl(theirs.get(), F_SETFD, 0);
  if ((flags & O_NONBLOCK) != 0) fcntl(theirs.get(), F_SETFL, O_RDWR | O_NONBLOCK);
  const auto identity = Identity::of(theirs.get());
  if (!identity) return EMFILE;
  channel->identity_ = *identity;
  fd = theirs.release();
  return 0;
}

Channel::~Channel() {
  ForkGuard().close(our_end_);
}

bool Channel::hung_up() const {
  pollfd state{our_end_, POLLIN, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0;
}

bool Channel::discard_arrivals() {
  std::array<uint8_t, 512> bytes;
  bool some = false;
  while (recv(our_end_, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) some = true;
  return some;
}

// Where no byte fits any more, the other end is readable anyhow.
void Channel::push(QueuedEvent event) {
  events_.push_back(std::move(event));
  constexpr uint8_t kByte = 0;
  if (send(our_end_, &kByte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) ++bytes_;
}

QueuedEvent Channel::pop(int fd) {
  QueuedEvent first = std::move(events_.front());
  events_.pop_front();
  match_bytes(fd);
  return first;
}

// Another thread may have closed `fd` by now, and made another socket of that number, whose bytes are not ours.
void Channel::match_bytes(int fd) {
  std::array<uint8_t, 512> bytes;
  while (bytes_ > events_.size() && Identity::of(fd) == identity_) {
    const size_t surplus = std::min(bytes_ - events_.size(), bytes.size());
    const ssize_t taken = recv(fd, bytes.data(), surplus, MSG_DONTWAIT);
    if (taken <= 0) {
      bytes_ = taken < 0 && errno == EAGAIN ? 0 : bytes_;  // the application has read them itself
      return;
    }
    bytes_ -= static_cast<size_t>(taken);
  }
}

}  // namespace uroce::rdma_cm

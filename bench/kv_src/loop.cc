// SPDX-License-Identifier: BSD-2-Clause
#include <array>
#include <cerrno>
#include <utility>

#include "bench/kv_src/kv.h"
#include "bench/limits_src/peer_socket.h"

namespace uroce::kv {

Loop::Loop() : set_(epoll_create1(EPOLL_CLOEXEC)) {}

void Loop::add(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &event) != 0) limits::fail_with_errno("epoll_ctl");
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
}

void Loop::change(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(set_.get(), EPOLL_CTL_MOD, fd, &event) != 0) limits::fail_with_errno("epoll_ctl");
}

void Loop::remove(int fd) {
  epoll_ctl(set_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

// A handler may remove others, and itself.
void Loop::turn(int ms) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(set_.get(), events.data(), events.size(), ms);
  if (count < 0 && errno != EINTR) limits::fail_with_errno("epoll_wait");
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto found = handlers_.find(event.data.fd);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;
    (*handler)(event.events);
  }
}

}  // namespace uroce::kv

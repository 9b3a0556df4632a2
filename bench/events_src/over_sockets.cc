// SPDX-License-Identifier: BSD-2-Clause
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <vector>

#include "bench/events_src/events_bench.h"
#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"

namespace uroce::events {
namespace {

using limits::fail_with_errno;

constexpr uint32_t kReadRequest = 16;  // what asks for the bytes of a READ

class Sockets final : public Exchange {
 public:
  Sockets(const Options& options, const std::function<int()>& connect)
      : wait_(options.wait),
        out_(options.server ? options.response_bytes : request_bytes(options)),
        in_(options.server ? request_bytes(options) : options.response_bytes),
        connections_(options.connections),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (wait_ == Wait::kBlocking && options.connections != 1) throw std::runtime_error("one connection only can block");
    for (uint32_t i = 0; i < options.connections; ++i) {
      connections_[i].fd = connect();
      if (wait_ == Wait::kBlocking) continue;
      fcntl(connections_[i].fd, F_SETFL, O_NONBLOCK);
      epoll_event event{.events = EPOLLIN, .data = {.u32 = i}};
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_[i].fd, &event) != 0) fail_with_errno("epoll_ctl");
    }
    source_.resize(out_);
    sink_.resize(size_t{1} << 20);
  }

  void send(uint32_t i) override {
    connections_[i].unsent += out_;
    write_some(i);
  }

  void wait(const OnMessage& on_message) override {
    if (wait_ == Wait::kBlocking) return read_some(0, on_message);
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, 64, wait_ == Wait::kEpoll ? -1 : 0);
    if (count < 0 && errno != EINTR) fail_with_errno("epoll_wait");
    for (int i = 0; i < count; ++i) {
      if (events[i].events & EPOLLOUT) write_some(events[i].data.u32);
      if (events[i].events & EPOLLIN) read_some(events[i].data.u32, on_message);
    }
  }

 private:
  struct Connection {
    int fd = -1;
    size_t unsent = 0;  // bytes
    size_t read = 0;    // bytes of a message that is not complete
    bool full = false;  // waits for room
  };
  static uint32_t request_bytes(const Options& options) {
    return options.request == Request::kRead ? kReadRequest : options.request_bytes;
  }

  void write_some(uint32_t i) {
    Connection& c = connections_[i];
    while (c.unsent > 0) {
      const ssize_t n = ::write(c.fd, source_.data(), std::min<size_t>(c.unsent, out_));
      if (n < 0 && errno == EAGAIN) break;
      if (n < 0 && errno == EINTR && !limits::stop_requested()) continue;
      if (n < 0) return;  // the other side has ended
      c.unsent -= static_cast<size_t>(n);
    }
    const bool full = c.unsent > 0;
    if (full == c.full) return;
    c.full = full;
    epoll_event event{.events = full ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u32 = i}};
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &event) != 0) fail_with_errno("epoll_ctl");
  }

  void read_some(uint32_t i, const OnMessage& on_message) {
    Connection& c = connections_[i];
    const ssize_t n = ::read(c.fd, sink_.data(), sink_.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, c.fd, nullptr);
      if (wait_ == Wait::kBlocking) poll(nullptr, 0, 10);
      return;
    }
    for (c.read += static_cast<size_t>(n); c.read >= in_; c.read -= in_) on_message(i);
  }

  const Wait wait_;
  const uint32_t out_, in_;  // bytes of a message
  std::vector<Connection> connections_;
  const int epoll_;
  std::vector<char> source_, sink_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_over_sockets(const Options& options, const std::function<int()>& connect) {
  return std::make_unique<Sockets>(options, connect);
}

}  // namespace uroce::events

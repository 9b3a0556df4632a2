// SPDX-License-Identifier: BSD-2-Clause
#include "bench/events_src/descriptor_wait.h"

#include <cerrno>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"

#ifdef UROCE_HAS_URING
#include <liburing.h>
#endif

namespace uroce::events {
namespace {

using limits::fail_with_errno;

void expect(bool good, const char* step) {
  if (!good && errno != EINTR) fail_with_errno(step);
}

template <uint32_t kFlags>
class InEpoll final : public DescriptorWait {
 public:
  explicit InEpoll(int fd) {
    epoll_event event{};
    event.events = EPOLLIN | kFlags;
    expect(epoll_ctl(set_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  }
  ~InEpoll() override { close(set_); }
  void wait() override {
    epoll_event event;
    expect(epoll_wait(set_, &event, 1, -1) >= 0, "epoll_wait");
  }

 private:
  const int set_ = epoll_create1(EPOLL_CLOEXEC);
};

class Oneshot final : public DescriptorWait {
 public:
  explicit Oneshot(int fd) : fd_(fd) {}
  ~Oneshot() override { close(set_); }
  void wait() override {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    expect(epoll_ctl(set_, added_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd_, &event) == 0, "epoll_ctl");
    added_ = true;
    expect(epoll_wait(set_, &event, 1, -1) >= 0, "epoll_wait");
  }

 private:
  const int fd_;
  const int set_ = epoll_create1(EPOLL_CLOEXEC);
  bool added_ = false;
};

class Nested final : public DescriptorWait {
 public:
  explicit Nested(int fd) : fd_(dup(fd)), inner_(fd_), outer_(fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    expect(epoll_ctl(set_, EPOLL_CTL_ADD, inner_.set(), &event) == 0, "epoll_ctl");
  }
  ~Nested() override {
    close(set_);
    close(fd_);
  }
  void wait() override {
    epoll_event event;
    expect(epoll_wait(set_, &event, 1, -1) >= 0, "epoll_wait");
  }

 private:
  struct Set {
    explicit Set(int fd) {
      epoll_event event{};
      event.events = EPOLLIN;
      expect(epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    }
    ~Set() { close(fd_); }
    int set() const { return fd_; }
    const int fd_ = epoll_create1(EPOLL_CLOEXEC);
  };
  const int fd_;
  const Set inner_, outer_;  // the descriptor is in both, and nobody waits for one of them
  const int set_ = epoll_create1(EPOLL_CLOEXEC);
};

class InPoll final : public DescriptorWait {
 public:
  explicit InPoll(int fd) : fd_(fd) {}
  void wait() override {
    pollfd descriptor{fd_, POLLIN, 0};
    expect(poll(&descriptor, 1, -1) >= 0, "poll");
  }

 private:
  const int fd_;
};

class InSelect final : public DescriptorWait {
 public:
  explicit InSelect(int fd) : fd_(fd) {}
  void wait() override {
    fd_set descriptors;
    FD_ZERO(&descriptors);
    FD_SET(fd_, &descriptors);
    expect(select(fd_ + 1, &descriptors, nullptr, nullptr, nullptr) >= 0, "select");
  }

 private:
  const int fd_;
};

#ifdef UROCE_HAS_URING
class InUring final : public DescriptorWait {
 public:
  explicit InUring(int fd) : fd_(fd) {
    const int error = io_uring_queue_init(8, &ring_, 0);
    errno = -error;
    expect(error == 0, "io_uring_queue_init");
  }
  ~InUring() override { io_uring_queue_exit(&ring_); }
  void wait() override {
    io_uring_prep_poll_add(io_uring_get_sqe(&ring_), fd_, POLLIN);
    io_uring_submit(&ring_);
    io_uring_cqe* done = nullptr;
    while (io_uring_wait_cqe(&ring_, &done) == -EINTR && !limits::stop_requested()) continue;
    if (done != nullptr) io_uring_cqe_seen(&ring_, done);
  }

 private:
  const int fd_;
  io_uring ring_{};
};
#endif

template <class T>
std::unique_ptr<DescriptorWait> make(int fd) {
  return std::make_unique<T>(fd);
}

}  // namespace

const std::map<std::string, MakeWait>& descriptor_waits() {
  static const std::map<std::string, MakeWait> waits{
      {"epoll", make<InEpoll<0>>}, {"edge", make<InEpoll<EPOLLET>>}, {"exclusive", make<InEpoll<EPOLLEXCLUSIVE>>},
      {"oneshot", make<Oneshot>},  {"nested", make<Nested>},         {"poll", make<InPoll>},
      {"select", make<InSelect>},
#ifdef UROCE_HAS_URING
      {"io_uring", make<InUring>},
#endif
  };
  return waits;
}

}  // namespace uroce::events

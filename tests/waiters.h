// SPDX-License-Identifier: BSD-2-Clause
// So many that wait at a socket: whoever sends to it wakes them all, which takes 0.1 us each.
#pragma once

#include <cstddef>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <vector>

#include "base/unique_fd.h"

namespace uroce::test {

class Waiters {
 public:
  Waiters(int socket, size_t count) {
    constexpr size_t kCopies = 300;
    for (size_t i = 0; i < kCopies; ++i) copies_.emplace_back(fcntl(socket, F_DUPFD_CLOEXEC, 0));
    for (size_t i = 0; i < count; ++i) {
      if (i % kCopies == 0) sets_.emplace_back(epoll_create1(EPOLL_CLOEXEC));
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLET;
      const int added = epoll_ctl(sets_.back().get(), EPOLL_CTL_ADD, copies_[i % kCopies].get(), &event);
      if (added != 0) {
        ADD_FAILURE() << "there are no more than " << i << " waiters";
        return;
      }
    }
  }

 private:
  std::vector<UniqueFd> copies_, sets_;
};

}  // namespace uroce::test

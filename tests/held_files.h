// SPDX-License-Identifier: BSD-2-Clause
// What attackers pass on: files whose last close() does not end, not even that of a process which ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "tests/unfilled_memory.h"

namespace uroce::test {

// They are in an epoll set, whose lock a thread holds that looks for events, as long as this is there.
class HeldFiles {
 public:
  explicit HeldFiles(size_t count) : set_(epoll_create1(EPOLL_CLOEXEC)) {
    for (size_t i = 0; i < count; ++i) add(files_.emplace_back(eventfd(0, EFD_CLOEXEC)));
    add(ready_);
    looks_ = std::thread([this] { epoll_wait(set_.get(), static_cast<epoll_event*>(memory_.get()), 1, -1); });
    EXPECT_TRUE(memory_.is_waited_for());
  }
  ~HeldFiles() {
    memory_.fill();
    looks_.join();
  }
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // The only descriptor of one.
  UniqueFd take() {
    EXPECT_FALSE(files_.empty());
    UniqueFd file = std::move(files_.back());
    files_.pop_back();
    return file;
  }

 private:
  void add(const UniqueFd& file) const {
    epoll_event event{.events = EPOLLIN, .data = {}};
    EXPECT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_ADD, file.get(), &event), 0);
  }

  UnfilledMemory memory_;
  const UniqueFd set_, ready_{eventfd(1, EFD_CLOEXEC)};
  std::vector<UniqueFd> files_;
  std::thread looks_;
};

}  // namespace uroce::test

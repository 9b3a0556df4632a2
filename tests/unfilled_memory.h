// SPDX-License-Identifier: BSD-2-Clause
// Memory that nobody fills: what reads or writes it stands still, in a system call with all locks that it has. As root;
// others do it with memory of a file system of theirs (FUSE).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace uroce::test {

class UnfilledMemory {
 public:
  static constexpr size_t kSize = 4096;

  UnfilledMemory() : faults_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_API, &api), 0);
    memory_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register watch{
        .range = {reinterpret_cast<uint64_t>(memory_), kSize}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_REGISTER, &watch), 0);
  }
  ~UnfilledMemory() { munmap(memory_, kSize); }
  UnfilledMemory(const UnfilledMemory&) = delete;
  UnfilledMemory& operator=(const UnfilledMemory&) = delete;

  void* get() const { return memory_; }
  // Somebody stands still.
  bool is_waited_for() const {
    constexpr int kTimeoutMs = 20'000;
    pollfd fault{faults_.get(), POLLIN, 0};
    return poll(&fault, 1, kTimeoutMs) == 1;
  }
  // All go on.
  void fill() { faults_.reset(); }

 private:
  UniqueFd faults_;
  void* memory_ = nullptr;
};

}  // namespace uroce::test

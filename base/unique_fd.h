// SPDX-License-Identifier: BSD-2-Clause
// Owner of a file descriptor: closes it at the end, whichever way a function is left. For descriptors that children may
// inherit; those that stand for the netdev go through ForkGuard (fork.h).
#pragma once

#include <unistd.h>
#include <utility>

namespace uroce {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // The caller's from now on.
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// What attackers do to a socket of theirs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "engine/base/unique_fd.h"

namespace uroce::test {

// Holds the lock of a UDP socket, as long as it is there: a thread sends from memory that nobody fills. Every system
// call that takes the lock waits, and cannot be killed. As root; others do it with memory of a file system of theirs.
class SocketLock {
 public:
  // `to`: an IPv4 address that the socket may send to.
  explicit SocketLock(int socket, in_addr to = {htonl(INADDR_LOOPBACK)})
      : faults_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_API, &api), 0);
    memory_ = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register watch{
        .range = {reinterpret_cast<uint64_t>(memory_), kPage}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_REGISTER, &watch), 0);
    sender_ = std::thread([socket, to, memory = memory_] {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(4791);
      address.sin_addr = to;
      constexpr size_t kLength = 100;
      sendto(socket, memory, kLength, MSG_MORE, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    });
    constexpr int kTimeoutMs = 20'000;
    pollfd fault{faults_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&fault, 1, kTimeoutMs), 1) << "it has the lock then";
  }
  ~SocketLock() {
    faults_.reset();
    sender_.join();
    munmap(memory_, kPage);
  }
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

 private:
  static constexpr size_t kPage = 4096;
  UniqueFd faults_;
  void* memory_ = nullptr;
  std::thread sender_;
};

}  // namespace uroce::test

// SPDX-License-Identifier: BSD-2-Clause
// What attackers do to a socket of theirs.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "tests/unfilled_memory.h"

namespace uroce::test {

// Holds the lock of a UDP socket, as long as it is there: a thread sends from memory that nobody fills. Every system
// call that takes the lock waits, and cannot be killed.
class SocketLock {
 public:
  // `to`: an IPv4 address that the socket may send to.
  explicit SocketLock(int socket, in_addr to = {htonl(INADDR_LOOPBACK)}) {
    sender_ = std::thread([socket, to, memory = memory_.get()] {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(4791);
      address.sin_addr = to;
      constexpr size_t kLength = 100;
      sendto(socket, memory, kLength, MSG_MORE, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    });
    EXPECT_TRUE(memory_.is_waited_for()) << "it has the lock then";
  }
  ~SocketLock() {
    memory_.fill();
    sender_.join();
  }
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

 private:
  UnfilledMemory memory_;
  std::thread sender_;
};

}  // namespace uroce::test

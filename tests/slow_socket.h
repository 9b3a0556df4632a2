// SPDX-License-Identifier: BSD-2-Clause
// What attackers pass on.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

#include "base/unique_fd.h"

namespace uroce::test {

// A TCP socket whose data nobody reads: the last close() of it waits for a minute.
inline UniqueFd slow_socket() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(sender.get(), generic, size), 0);
  static std::vector<UniqueFd> receivers;
  receivers.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::vector<uint8_t> data(1 << 20);
  while (::send(sender.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const linger minute{.l_onoff = 1, .l_linger = 60};
  EXPECT_EQ(setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &minute, sizeof(minute)), 0);
  return sender;
}

}  // namespace uroce::test

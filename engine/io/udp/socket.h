// SPDX-License-Identifier: BSD-2-Clause
// Sockets on port 4791, set up the way RoCE v2 needs them. UdpIo has one per IP version: its own and bound to its
// netdev, or one that the broker made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/unique_fd.h"

namespace uroce::io {

// What a socket asks for in each direction: room for 7000 packets of 1 KiB as the kernel counts.
constexpr int kUdpBufferSize = 8 << 20;
// The receive buffer that the kernel gives this process, as it counts: with what it keeps beside the packets, for which
// it doubles the size that is asked for. 0: there is no UDP.
size_t udp_receive_buffer();

class UdpSocket {
 public:
  UdpSocket() = default;
  // One that the broker made.
  explicit UdpSocket(UniqueFd fd);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UdpSocket& operator=(UdpSocket&&) = delete;

  // The only one on this netdev. `family`: AF_INET or AF_INET6. On an error the socket is not open.
  std::optional<IoError> open(int family, const std::string& netdev);

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// One of several sockets that have the port together, on all netdevs: an SO_REUSEPORT group, whose members have one
// user. The broker makes them (broker/steering/steering.h), for processes of one host among others: multicast packets
// that one sends come to the others, and to itself.
std::variant<UniqueFd, IoError> open_group_member(int family);
// Gives a member the options that it was made with, whatever its last user has changed. 0 or an errno value.
int reset_group_member(int fd, int family);

}  // namespace uroce::io

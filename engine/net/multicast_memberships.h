// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups that this process is in, as the kernel knows them: it tells switches and routers (IGMP, MLD) and
// opens the NIC's filter. The packets are not taken here. Works without privileges.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "wire/envelope.h"

namespace uroce::net {

// One socket joins or leaves a group. 0 or an errno value, as MulticastMemberships::join(); ENOBUFS, ENOMEM: the kernel
// allows the socket no more groups.
int change_membership(int socket, bool joins, int ifindex, const wire::IpAddress& group);

// IPv4 groups that the kernel allows one socket in this network namespace.
uint32_t groups_of_a_socket();

class MulticastMemberships {
 public:
  MulticastMemberships() = default;
  ~MulticastMemberships();
  MulticastMemberships(const MulticastMemberships&) = delete;
  MulticastMemberships& operator=(const MulticastMemberships&) = delete;

  // 0, also if it has joined already, or an errno value: EINVAL not a multicast address, ENODEV no such netdev.
  int join(int ifindex, const wire::IpAddress& group);
  void leave(const wire::IpAddress& group);

 private:
  // A group's socket. One holds several groups: the kernel bounds the memberships of a socket
  // (net.ipv4.igmp_max_memberships, 20 by default), and rlimits bound the sockets of a process.
  struct Membership {
    int fd;
    int ifindex;
  };
  std::map<std::array<uint8_t, 16>, Membership> groups_;
  std::vector<int> sockets_v4_;
  std::vector<int> sockets_v6_;
};

}  // namespace uroce::net

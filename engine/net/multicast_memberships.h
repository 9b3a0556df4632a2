// Multicast groups that this process is in, as the kernel knows them: it tells switches and routers (IGMP, MLD) and
// opens the NIC's filter. The packets are not taken here. Works without privileges.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "wire/envelope.h"

namespace uroce::net {

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
  // One socket a group: the kernel bounds the memberships of a socket (net.ipv4.igmp_max_memberships), not of a
  // process.
  std::map<std::array<uint8_t, 16>, int> sockets_;
};

}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/multicast_memberships.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"

namespace uroce::net {

namespace {

int change(int fd, int option, int ifindex, const wire::IpAddress& group) {
  group_req request{};
  request.gr_interface = static_cast<uint32_t>(ifindex);
  if (group.is_v4()) {
    auto* const address = reinterpret_cast<sockaddr_in*>(&request.gr_group);
    address->sin_family = AF_INET;
    std::memcpy(&address->sin_addr, group.v4_bytes(), 4);
  } else {
    auto* const address = reinterpret_cast<sockaddr_in6*>(&request.gr_group);
    address->sin6_family = AF_INET6;
    std::memcpy(&address->sin6_addr, group.bytes.data(), 16);
  }
  const int level = group.is_v4() ? IPPROTO_IP : IPPROTO_IPV6;
  return ::setsockopt(fd, level, option, &request, sizeof(request)) == 0 ? 0 : errno;
}

// The socket has no room for one more membership.
bool is_full(int error) {
  return error == ENOBUFS || error == ENOMEM;
}

}  // namespace

int change_membership(int socket, bool joins, int ifindex, const wire::IpAddress& group) {
  return change(socket, joins ? MCAST_JOIN_GROUP : MCAST_LEAVE_GROUP, ifindex, group);
}

uint32_t groups_of_a_socket() {
  uint32_t groups = 20;  // the kernel's default
  std::ifstream("/proc/sys/net/ipv4/igmp_max_memberships") >> groups;
  return groups;
}

MulticastMemberships::~MulticastMemberships() {
  for (const std::vector<int>& sockets : {sockets_v4_, sockets_v6_}) {
    for (const int fd : sockets) ForkGuard().close(fd);  // leaves its groups
  }
}

int MulticastMemberships::join(int ifindex, const wire::IpAddress& group) {
  if (groups_.contains(group.bytes)) return 0;
  std::vector<int>& sockets = group.is_v4() ? sockets_v4_ : sockets_v6_;
  for (const int fd : sockets) {
    const int error = change(fd, MCAST_JOIN_GROUP, ifindex, group);
    if (is_full(error)) continue;
    if (error == 0) groups_.emplace(group.bytes, Membership{fd, ifindex});
    return error;
  }
  ForkGuard guard;
  const int fd = ::socket(group.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  if (const int error = change(fd, MCAST_JOIN_GROUP, ifindex, group); error != 0) {
    ::close(fd);
    return error;
  }
  sockets.push_back(fd);
  groups_.emplace(group.bytes, Membership{fd, ifindex});
  guard.close_in_children(fd);
  return 0;
}

void MulticastMemberships::leave(const wire::IpAddress& group) {
  const auto it = groups_.find(group.bytes);
  if (it == groups_.end()) return;
  const Membership left = it->second;
  change(left.fd, MCAST_LEAVE_GROUP, left.ifindex, group);
  groups_.erase(it);
  for (const auto& [other, membership] : groups_) {
    if (membership.fd == left.fd) return;
  }
  std::erase(group.is_v4() ? sockets_v4_ : sockets_v6_, left.fd);
  ForkGuard().close(left.fd);
}

}  // namespace uroce::net

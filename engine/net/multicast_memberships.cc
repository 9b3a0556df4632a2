#include "engine/net/multicast_memberships.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/fork.h"

namespace uroce::net {

MulticastMemberships::~MulticastMemberships() {
  for (const auto& [group, fd] : sockets_) ForkGuard().close(fd);  // leaves
}

int MulticastMemberships::join(int ifindex, const wire::IpAddress& group) {
  if (sockets_.contains(group.bytes)) return 0;
  const bool v4 = group.is_v4();
  ForkGuard guard;
  const int fd = ::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  group_req request{};
  request.gr_interface = static_cast<uint32_t>(ifindex);
  if (v4) {
    auto* const address = reinterpret_cast<sockaddr_in*>(&request.gr_group);
    address->sin_family = AF_INET;
    std::memcpy(&address->sin_addr, group.v4_bytes(), 4);
  } else {
    auto* const address = reinterpret_cast<sockaddr_in6*>(&request.gr_group);
    address->sin6_family = AF_INET6;
    std::memcpy(&address->sin6_addr, group.bytes.data(), 16);
  }
  if (::setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof(request)) != 0) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  sockets_.emplace(group.bytes, fd);
  guard.close_in_children(fd);
  return 0;
}

void MulticastMemberships::leave(const wire::IpAddress& group) {
  const auto it = sockets_.find(group.bytes);
  if (it == sockets_.end()) return;
  ForkGuard().close(it->second);
  sockets_.erase(it);
}

}  // namespace uroce::net

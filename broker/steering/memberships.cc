// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/memberships.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/socket.h>

namespace uroce::broker {
namespace {

void leave(int fd, int level, const group_req& request) {
  setsockopt(fd, level, MCAST_LEAVE_GROUP, &request, sizeof(request));  // fails for groups that it is not in
}

// Lines of netdevs, as "2\tva        :     1      V3", each followed by those of its groups, as "\t\t\t\t010000E0     1
// 0:00000000\t\t0": the address as the machine's number.
void leave_ipv4(int fd) {
  std::ifstream file("/proc/thread-self/net/igmp");
  uint32_t ifindex = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() != '\t') {
      std::istringstream(line) >> ifindex;
      continue;
    }
    uint32_t address = 0;
    if (!(std::istringstream(line) >> std::hex >> address)) continue;
    group_req request{};
    request.gr_interface = ifindex;
    auto* const group = reinterpret_cast<sockaddr_in*>(&request.gr_group);
    group->sin_family = AF_INET;
    group->sin_addr.s_addr = address;
    leave(fd, IPPROTO_IP, request);
  }
}

// Lines as "2    va              ff020000000000000000000000000001     1 0000000C 0".
void leave_ipv6(int fd) {
  std::ifstream file("/proc/thread-self/net/igmp6");
  for (std::string line; std::getline(file, line);) {
    uint32_t ifindex = 0;
    std::string netdev, address;
    if (!(std::istringstream(line) >> ifindex >> netdev >> address) || address.size() != 32) continue;
    group_req request{};
    request.gr_interface = ifindex;
    auto* const group = reinterpret_cast<sockaddr_in6*>(&request.gr_group);
    group->sin6_family = AF_INET6;
    for (size_t i = 0; i < 16; ++i) {
      group->sin6_addr.s6_addr[i] = static_cast<uint8_t>(std::stoul(address.substr(2 * i, 2), nullptr, 16));
    }
    leave(fd, IPPROTO_IPV6, request);
  }
}

}  // namespace

void leave_all_groups(int fd, int family) {
  if (family == AF_INET) {
    leave_ipv4(fd);
  } else {
    leave_ipv6(fd);
  }
}

}  // namespace uroce::broker

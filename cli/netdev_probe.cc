// SPDX-License-Identifier: BSD-2-Clause
#include "cli/netdev_probe.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "cli/host_probe.h"
#include "engine/io/netdev_query.h"
#include "engine/io/udp/socket.h"

namespace uroce::cli {
namespace {

std::string rxe_on(const std::string& name) {
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    if (read_line(device.path() / "parent") == name) return device.path().filename();
  }
  return "";
}

uint32_t v4_of(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

// What is up and has IPv4, but `lo`.
bool has_v4_subnet(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && entry.ifa_addr->sa_family == AF_INET && entry.ifa_netmask != nullptr &&
         (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_LOOPBACK) == 0;
}

std::vector<std::string> in_same_subnet(const std::string& name) {
  std::vector<std::string> others;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return others;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* own = all; own != nullptr; own = own->ifa_next) {
    if (own->ifa_name != name || !has_v4_subnet(*own)) continue;
    for (const ifaddrs* other = all; other != nullptr; other = other->ifa_next) {
      if (other->ifa_name == name || !has_v4_subnet(*other)) continue;
      const uint32_t common = v4_of(own->ifa_netmask) & v4_of(other->ifa_netmask);
      if (common == 0 || (v4_of(own->ifa_addr) & common) != (v4_of(other->ifa_addr) & common)) continue;
      if (std::find(others.begin(), others.end(), other->ifa_name) == others.end())
        others.emplace_back(other->ifa_name);
    }
  }
  return others;
}

// The kernel takes the larger one of that for all netdevs and the netdev's own.
int ipv4_setting(const std::string& netdev, const std::string& setting) {
  const std::string directory = "/proc/sys/net/ipv4/conf/";
  return std::max(std::atoi(read_line(directory + "all/" + setting).c_str()),
                  std::atoi(read_line(directory + netdev + "/" + setting).c_str()));
}

}  // namespace

NetdevProbe probe_netdev(const std::string& name) {
  return {.queues = io::rx_queue_count(name),
          .rxe_device = rxe_on(name),
          .same_subnet = in_same_subnet(name),
          .arp_ignore = ipv4_setting(name, "arp_ignore"),
          .rp_filter = ipv4_setting(name, "rp_filter")};
}

std::optional<io::IoError> udp_obstacle(const std::string& netdev) {
  for (const int family : {AF_INET, AF_INET6}) {
    auto error = io::UdpSocket().open(family, netdev);
    const bool no_ipv6 = error && family == AF_INET6 && error->code == EAFNOSUPPORT;
    if (error && !no_ipv6) return error;
  }
  return std::nullopt;
}

}  // namespace uroce::cli

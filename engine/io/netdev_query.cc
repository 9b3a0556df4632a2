// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/netdev_query.h"

#include <algorithm>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace uroce::io {
namespace {

bool netdev_ioctl(unsigned long request, const std::string& netdev, ifreq& ifr) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  netdev.copy(ifr.ifr_name, IFNAMSIZ - 1);
  const bool ok = ioctl(fd, request, &ifr) == 0;
  close(fd);
  return ok;
}

}  // namespace

bool netdev_is_up(const std::string& netdev) {
  ifreq ifr{};
  return netdev_ioctl(SIOCGIFFLAGS, netdev, ifr) && (ifr.ifr_flags & IFF_UP) != 0;
}

bool strips_vlan_tags(const std::string& netdev) {
  ifreq ifr{};
  ethtool_value flags{ETHTOOL_GFLAGS, 0};
  ifr.ifr_data = reinterpret_cast<char*>(&flags);
  if (netdev_ioctl(SIOCETHTOOL, netdev, ifr) && (flags.data & ETH_FLAG_RXVLAN) != 0) return true;
  // A veth end has the setting, and gets frames as the other end's settings leave them.
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifr.ifr_data = reinterpret_cast<char*>(&driver);
  return netdev_ioctl(SIOCETHTOOL, netdev, ifr) && std::string_view(driver.driver) == "veth";
}

uint32_t rx_queue_count(const std::string& netdev) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq ifr{};
  ifr.ifr_data = reinterpret_cast<char*>(&channels);
  if (!netdev_ioctl(SIOCETHTOOL, netdev, ifr)) return 1;
  const uint64_t told = uint64_t{channels.combined_count} + channels.rx_count;
  return static_cast<uint32_t>(std::clamp<uint64_t>(told, 1, kMaxRxQueues));
}

}  // namespace uroce::io

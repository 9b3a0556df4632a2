// SPDX-License-Identifier: BSD-2-Clause
// See netdev_settings.h.
#include "engine/net/netdev_settings.h"

#include <array>
#include <fstream>
#include <limits>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

namespace uroce::net {
namespace {

constexpr uint8_t kDefaultHopLimit = 64;  // the kernel's own default for both families

// A number below /proc/sys/net, which is that of the reader's network namespace; 0 when it cannot be read.
uint32_t read_sysctl(const std::string& name) {
  std::ifstream file("/proc/sys/net/" + name);
  uint32_t value = 0;
  return file >> value ? value : 0;
}

uint8_t hop_limit_or_default(uint32_t value) {
  return value >= 1 && value <= 255 ? static_cast<uint8_t>(value) : kDefaultHopLimit;
}

}  // namespace

uint32_t link_speed_mbps(int descriptor, const std::string& netdev_name) {
  // ETHTOOL_GLINKSETTINGS is asked twice: the first answer is minus the number of words of the link mode masks, the
  // second has room for them. A driver without link settings refuses.
  constexpr size_t kMaskBytes = 3 * 127 * sizeof(uint32_t);  // three masks of at most INT8_MAX words
  alignas(ethtool_link_settings) std::array<char, sizeof(ethtool_link_settings) + kMaskBytes> buffer{};
  auto* settings = reinterpret_cast<ethtool_link_settings*>(buffer.data());
  ifreq request{};
  netdev_name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = buffer.data();
  settings->cmd = ETHTOOL_GLINKSETTINGS;
  if (ioctl(descriptor, SIOCETHTOOL, &request) != 0 || settings->link_mode_masks_nwords >= 0) return 0;
  settings->cmd = ETHTOOL_GLINKSETTINGS;
  settings->link_mode_masks_nwords = static_cast<int8_t>(-settings->link_mode_masks_nwords);
  if (ioctl(descriptor, SIOCETHTOOL, &request) != 0) return 0;
  return settings->speed == static_cast<uint32_t>(SPEED_UNKNOWN) ? 0 : settings->speed;
}

uint8_t default_ttl() {
  return hop_limit_or_default(read_sysctl("ipv4/ip_default_ttl"));
}

uint8_t default_hop_limit(const std::string& netdev_name) {
  return hop_limit_or_default(read_sysctl("ipv6/conf/" + netdev_name + "/hop_limit"));
}

uint32_t ipv6_mtu(const std::string& netdev_name) {
  return read_sysctl("ipv6/conf/" + netdev_name + "/mtu");
}

LocalPorts local_ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  uint32_t first = 0, last = 0;
  constexpr uint32_t kMost = std::numeric_limits<uint16_t>::max();
  if (!(file >> first >> last) || first == 0 || first > last || last > kMost) return {};
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

bool udp_takes_from_vrfs() {
  return read_sysctl("ipv4/udp_l3mdev_accept") != 0;
}

bool binds_v6_only() {
  return read_sysctl("ipv6/bindv6only") != 0;
}

}  // namespace uroce::net

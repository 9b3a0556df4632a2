// SPDX-License-Identifier: BSD-2-Clause
// What netlink does not tell: of a netdev the speed (ethtool), default hop limits and the IPv6 MTU (sysctl); of all the
// rules for local ports (sysctl). All of it belongs to the current network namespace, also where /sys shows another
// one. Used by NetView and by connection managers.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::net {

// In Mb/s; 0 when the driver does not know. `descriptor`: any socket of the netdev's network namespace.
uint32_t link_speed_mbps(int descriptor, const std::string& netdev_name);

// net.ipv4.ip_default_ttl.
uint8_t default_ttl();

// net.ipv6.conf.<netdev>.hop_limit.
uint8_t default_hop_limit(const std::string& netdev_name);

// The MTU for IPv6, which a router advertisement may have set below the netdev's; 0: unknown.
uint32_t ipv6_mtu(const std::string& netdev_name);

// net.ipv4.ip_local_port_range, for both families: what port 0 may become. The kernel's default where it cannot be
// read.
struct LocalPorts {
  uint16_t first = 32768;
  uint16_t last = 60999;
};
LocalPorts local_ports();

// net.ipv4.udp_l3mdev_accept, for both families: UDP sockets that are bound to no netdev get packets that arrive in a
// VRF.
bool udp_takes_from_vrfs();

// net.ipv6.bindv6only: the wildcard address of IPv6 does not take IPv4.
bool binds_v6_only();

}  // namespace uroce::net

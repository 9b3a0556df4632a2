// SPDX-License-Identifier: BSD-2-Clause
// The rtnetlink messages that NetView needs, as values: requests to send, answers and notifications to read.
// Pure functions on bytes; the socket is netlink_socket.h. What is read is bounded by the lengths that libnl has
// checked against the message's: nlmsg_parse() for attributes, nla_len() for what is in one (rtnetlink_fuzzer.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/net/net_view.h"
#include "engine/net/netlink_socket.h"
#include "wire/envelope.h"

namespace uroce::net::rtnetlink {

// --- requests: the kernel answers with the messages below ---------------------------------------------------------
NlMessage dump_links();
NlMessage dump_addresses();
// `source` unspecified: the kernel chooses one, and the lookup is strictly bound to the netdev. Netdev 0: to none.
NlMessage get_route(int netdev_index, const wire::IpAddress& source, const wire::IpAddress& destination);
NlMessage dump_neighbours();
NlMessage get_neighbour(int netdev_index, const wire::IpAddress& address);
// As if a packet were to be sent there (NTF_USE): resolves or re-probes. Needs CAP_NET_ADMIN.
NlMessage use_neighbour(int netdev_index, const wire::IpAddress& address);

// --- answers and notifications ------------------------------------------------------------------------------------
struct Link {
  Netdev netdev;        // without speed, VLANs and addresses
  bool usable = false;  // carries packets of its own: no VRF, and no port of a bridge, bond, team
  bool arp = true;      // not IFF_NOARP
  int vlan_lower = 0;   // ifindex of the netdev in this namespace that it is a VLAN of; 0: it is none
};
// nullopt: no message about a whole link (bridge port and wireless events travel in the same group).
std::optional<Link> parse_link(const nlmsghdr& message);
// The netdev whose settings for IPv6 have changed, as by a router advertisement. nullopt: no such message.
std::optional<int> parse_ipv6_settings(const nlmsghdr& message);

struct Address {
  int netdev_index = 0;
  wire::IpAddress address;
  bool usable = false;  // duplicate address detection passed or not needed
};
std::optional<Address> parse_address(const nlmsghdr& message);

struct RouteAnswer {
  uint8_t type = 0;    // RTN_*
  uint32_t table = 0;  // 0: IPv4 found no route and assumes the destination on-link
  int output_index = 0;
  std::optional<wire::IpAddress> gateway;
  std::optional<wire::IpAddress> source;  // for packets that have none yet
  uint32_t mtu = 0;                       // bytes; 0: no metric
  uint32_t hop_limit = 0;                 // 0: no metric
};
std::optional<RouteAnswer> parse_route(const nlmsghdr& message);

// The destinations that a route is for; of a message about a route. nullopt: it is no such message.
std::optional<Prefix> parse_route_prefix(const nlmsghdr& message);

struct NeighbourEntry {
  int netdev_index = 0;
  wire::IpAddress address;
  Neighbour neighbour;  // kUnknown when the message says that the entry is gone
};
// nullopt for entries of other tables (bridge forwarding, proxies).
std::optional<NeighbourEntry> parse_neighbour(const nlmsghdr& message);

}  // namespace uroce::net::rtnetlink

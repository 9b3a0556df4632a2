// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/resolver.h"

#include <algorithm>
#include <cerrno>

namespace uroce::rdma_cm {
namespace {

// The address from which packets of a netdev to this one are: one of its family and scope.
std::optional<wire::IpAddress> link_local_source(const net::Netdev& netdev) {
  const auto found = std::find_if(netdev.addresses.begin(), netdev.addresses.end(),
                                  [](const wire::IpAddress& address) { return address.is_link_local(); });
  return found == netdev.addresses.end() ? std::nullopt : std::optional(*found);
}

// Nothing says from where: the kernel chooses.
Resolution choose_source(net::NetView& view, const Address& destination) {
  Resolution way;
  if (destination.ip.is_link_local()) {
    const auto netdev = view.netdev(static_cast<int>(destination.scope));
    const auto source = netdev ? link_local_source(*netdev) : std::nullopt;
    if (!source) return {.error = ENETUNREACH};
    way.netdev = netdev->index;
    way.source = *source;
    return way;
  }
  const auto departure = view.departure(destination.ip);
  if (!departure) return {.error = ENETUNREACH};
  way.netdev = departure->netdev_index;
  way.source = departure->source;
  if (departure->local) {  // through `lo`, whichever netdev has it
    const auto netdev = net::netdev_with(view, destination.ip);
    way.netdev = netdev ? netdev->index : 0;
    way.source = destination.ip;
  }
  return way;
}

}  // namespace

std::optional<net::Netdev> netdev_of(net::NetView& view, const Address& address) {
  if (!address.ip.is_link_local()) return net::netdev_with(view, address.ip);
  auto netdev = view.netdev(static_cast<int>(address.scope));
  if (!netdev) return std::nullopt;
  const auto& own = netdev->addresses;
  return std::find(own.begin(), own.end(), address.ip) == own.end() ? std::nullopt : netdev;
}

Resolution find_way(net::NetView& view, const Address& source, const Address& destination, bool loopback_device) {
  if (destination.is_wildcard(loopback_device)) return {.anywhere = true};
  Resolution way;
  if (source.is_wildcard(loopback_device)) {
    way = choose_source(view, destination);
  } else {
    const auto netdev = netdev_of(view, source);
    way.netdev = netdev ? netdev->index : 0;
    way.source = source.ip;
  }
  if (way.error != 0 || way.netdev == 0 || !view.netdev(way.netdev)) return way;
  const auto route = view.route(way.netdev, way.source, destination.ip);
  if (!route) return {.error = ENETUNREACH};
  way.route = *route;
  if (!route->local) way.next_hop = view.next_hop(way.netdev, route->next_hop);
  return way;
}

// What is around the payload of a RoCE v2 packet at most.
uint8_t path_mtu_code(uint32_t ip_mtu) {
  constexpr uint32_t kHeaders = 96;
  uint8_t code = 5;
  while (code > 1 && (128u << code) + kHeaders > ip_mtu) --code;
  return code;
}

}  // namespace uroce::rdma_cm

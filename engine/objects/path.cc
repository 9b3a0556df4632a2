// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/path.h"

#include <algorithm>
#include <cerrno>

#include "engine/objects/multicast_groups.h"

namespace uroce::engine {

namespace {
// Headers around the payload: the longest a message packet has (BTH, XRCETH, RETH, ImmDt) and the ICRC, behind the UDP
// header.
constexpr uint32_t kUdpOverhead = 8 + 12 + 4 + 16 + 4 + 4;
// What Linux subtracts from a netdev's MTU before it picks the path MTU (wire.md "MTU").
constexpr uint32_t kLinuxMtuReserve = 80;
}  // namespace

uint32_t largest_path_mtu(uint32_t netdev_mtu, uint32_t max_udp_length) {
  for (uint32_t mtu = 4096; mtu > 256; mtu /= 2) {
    if (mtu + kLinuxMtuReserve <= netdev_mtu && (max_udp_length == 0 || mtu + kUdpOverhead <= max_udp_length))
      return mtu;
  }
  return 256;
}

uint16_t source_port(uint32_t flow_label, wire::Qpn local, wire::Qpn remote) {
  uint32_t label = flow_label & 0xfffff;
  if (label == 0) {
    uint64_t v = uint64_t{local.value()} * remote.value();
    v ^= v >> 20;
    v ^= v >> 40;
    label = v & 0xfffff;
  }
  return static_cast<uint16_t>(((label & 0x3fff) ^ ((label & 0xfc000) >> 14)) | 0xc000);
}

int look_up_route(net::NetView& view, const net::Netdev& netdev, const wire::IpAddress& source,
                  const wire::IpAddress& destination, Destination::Route& route) {
  Destination::Route result;
  result.source_mac = netdev.mac;
  result.mtu = netdev.mtu;
  if (netdev.has(destination)) {
    result.loopback = true;
    result.mac = netdev.mac;
  } else {
    const auto found = view.route(netdev.index, source, destination);
    // Another netdev of this host is on the wire like everybody else. Only the kernel does not resolve its own
    // addresses, so its MAC address is taken from there, as kernel RoCE drivers do.
    const auto peer = net::netdev_with(view, destination);
    if (!found || (found->local && !peer)) return ENETUNREACH;
    result.local_delivery = peer || destination.is_multicast();
    // As Linux does for RoCE v2, the route decides about the hop limit, not the address vector.
    result.hop_limit = found->hop_limit;
    if (found->mtu != 0) result.mtu = std::min(result.mtu, found->mtu);
    if (peer && found->next_hop == destination) {
      result.mac = peer->mac;
    } else {
      result.next_hop = view.next_hop(netdev.index, found->next_hop);
    }
  }
  route = std::move(result);
  return 0;
}

Path make_path(const transport::AddressVector& address, std::shared_ptr<Destination> to, wire::Qpn local,
               wire::Qpn remote) {
  Path path;
  wire::Envelope& e = path.envelope;
  e.source = to->source;
  e.destination = to->address;
  e.source_port = source_port(address.flow_label, local, remote);
  // ECN-capable: every QP obeys CNPs (engine/congestion), so switches may mark instead of drop.
  e.traffic_class = static_cast<uint8_t>((address.traffic_class & ~wire::kEcnMask) | wire::kEcnEct0);
  e.flow_label = address.flow_label & 0xfffff;
  path.to = std::move(to);
  return path;
}

// Nobody answers marks on datagrams with CNPs, so switches must not count on it: not ECN-capable.
Path make_path(const transport::AddressVector& address, std::shared_ptr<Destination> to) {
  Path path = make_path(address, std::move(to), wire::Qpn(0), wire::Qpn(0));
  path.envelope.traffic_class = static_cast<uint8_t>(address.traffic_class & ~wire::kEcnMask);
  // Nothing but the address vector says how far a multicast message is to go.
  if (address.destination.is_multicast()) path.hop_limit = std::max<uint8_t>(address.hop_limit, 1);
  return path;
}

}  // namespace uroce::engine

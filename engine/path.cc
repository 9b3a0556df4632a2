#include "engine/path.h"

#include <algorithm>
#include <cerrno>

#include "engine/multicast_groups.h"

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

int resolve_route(net::NetView& view, const net::Netdev& netdev, const transport::AddressVector& address,
                  wire::Qpn local, wire::Qpn remote, Path& path) {
  if (address.source_gid_index >= netdev.addresses.size()) return EINVAL;
  const wire::IpAddress& source = netdev.addresses[address.source_gid_index];
  const wire::IpAddress& destination = address.destination;
  if (destination.is_unspecified() || source.is_v4() != destination.is_v4()) return EINVAL;

  Path result;
  wire::Envelope& e = result.envelope;
  e.source_mac = netdev.mac;
  e.source = source;
  e.destination = destination;
  e.source_port = source_port(address.flow_label, local, remote);
  // ECN-capable: every QP obeys CNPs (engine/congestion), so switches may mark instead of drop.
  e.traffic_class = static_cast<uint8_t>((address.traffic_class & ~wire::kEcnMask) | wire::kEcnEct0);
  e.flow_label = address.flow_label & 0xfffff;
  result.mtu = netdev.mtu;
  const auto& own = netdev.addresses;
  if (std::find(own.begin(), own.end(), destination) != own.end()) {
    result.loopback = result.resolved = true;
    e.destination_mac = netdev.mac;
  } else {
    const auto route = view.route(netdev.index, source, destination);
    // Another netdev of this host is on the wire like everybody else. Only the kernel does not resolve its own
    // addresses, so its MAC address is taken from there, as kernel RoCE drivers do.
    const auto peer = net::netdev_with(view, destination);
    if (!route || (route->local && !peer)) return ENETUNREACH;
    // As Linux does for RoCE v2, the route decides about the hop limit, not the address vector.
    e.hop_limit = route->hop_limit;
    result.next_hop = route->next_hop;
    if (route->mtu != 0) result.mtu = std::min(result.mtu, route->mtu);
    if (peer && result.next_hop == destination) {
      result.same_host = result.resolved = true;
      e.destination_mac = peer->mac;
    }
  }
  path = result;
  return 0;
}

// UD QPs are not paced by CNPs, so switches must not count on it: not ECN-capable.
int resolve_route(net::NetView& view, const net::Netdev& netdev, const transport::AddressVector& address, Path& path) {
  const int error = resolve_route(view, netdev, address, wire::Qpn(0), wire::Qpn(0), path);
  path.envelope.traffic_class = static_cast<uint8_t>(address.traffic_class & ~wire::kEcnMask);
  // Nothing but the address vector says how far a multicast message is to go.
  if (is_multicast(address.destination)) path.envelope.hop_limit = std::max<uint8_t>(address.hop_limit, 1);
  return error;
}

void resolve_neighbour(net::NetView& view, int netdev_index, Time now, Path& path) {
  constexpr Duration kAskInterval = std::chrono::milliseconds(100);
  if (path.loopback || path.same_host) return;
  const net::Neighbour neighbour = view.neighbour(netdev_index, path.next_hop);
  path.resolved = neighbour.state == net::NeighbourState::kUsable || neighbour.state == net::NeighbourState::kStale;
  if (path.resolved) path.envelope.destination_mac = neighbour.mac;
  const bool ask =
      neighbour.state != net::NeighbourState::kUsable && neighbour.state != net::NeighbourState::kResolving;
  if (ask && now - path.asked_at >= kAskInterval) {
    path.asked_at = now;
    view.resolve_neighbour(netdev_index, path.next_hop);
  }
}

}  // namespace uroce::engine

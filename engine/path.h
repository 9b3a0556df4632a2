// Where a connected QP's packets go: from an address vector to a filled-in envelope, kept up to date as routes and
// neighbours change.
#pragma once

#include <cstdint>

#include "engine/base/time.h"
#include "engine/net/net_view.h"
#include "engine/transport/qp_state.h"
#include "wire/envelope.h"

namespace uroce::engine {

struct Path {
  wire::Envelope envelope;
  wire::IpAddress next_hop;
  uint32_t mtu = 0;        // bytes the route allows, L3
  bool loopback = false;   // the peer is this very device
  bool same_host = false;  // the peer is another netdev of this host
  bool resolved = false;   // envelope.destination_mac is right (or not needed)
  Time asked_at{};         // when the kernel was last asked to resolve the next hop
};

// The largest path MTU (256 to 4096 bytes) whose packets fit the netdev's MTU as Linux reckons it, and UDP datagrams of
// `max_udp_length` bytes (0: as long as the netdev allows).
uint32_t largest_path_mtu(uint32_t netdev_mtu, uint32_t max_udp_length);

// The UDP source port that Linux and ConnectX derive for a connection, so that ECMP spreads QPs (wire.md "IP and UDP").
uint16_t source_port(uint32_t flow_label, wire::Qpn local, wire::Qpn remote);

// Fills `path` from an address vector. 0, or EINVAL (no such GID, families differ), ENETUNREACH (no route).
int resolve_route(net::NetView& view, const net::Netdev& netdev, const transport::AddressVector& address,
                  wire::Qpn local, wire::Qpn remote, Path& path);
// The same for an address handle of UD, which is of no QP.
int resolve_route(net::NetView& view, const net::Netdev& netdev, const transport::AddressVector& address, Path& path);

// Looks the next hop up; asks the kernel to find or confirm it when it is not known for certain.
void resolve_neighbour(net::NetView& view, int netdev_index, Time now, Path& path);

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// Where a QP's or an address handle's packets go: from an address vector to a filled-in envelope.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/net/net_view.h"
#include "engine/objects/destination.h"
#include "engine/transport/common/qp_state.h"
#include "wire/envelope.h"

namespace uroce::engine {

struct Path {
  // Addresses, port, traffic class and flow label are its own; MAC addresses and the hop limit are those of `to`, taken
  // from there for every packet (Datapath).
  wire::Envelope envelope;
  std::shared_ptr<Destination> to;  // null: the envelope is complete
  uint8_t hop_limit = 0;            // instead of the route's; 0: none

  bool loopback() const { return to != nullptr && to->route.loopback; }
  bool local_delivery() const { return to != nullptr && to->route.local_delivery; }
};

// The largest path MTU (256 to 4096 bytes) whose packets fit the netdev's MTU as Linux reckons it, and UDP datagrams of
// `max_udp_length` bytes (0: as long as the netdev allows).
uint32_t largest_path_mtu(uint32_t netdev_mtu, uint32_t max_udp_length);

// The UDP source port that Linux and ConnectX derive for a connection, so that ECMP spreads QPs (wire.md "IP and UDP").
uint16_t source_port(uint32_t flow_label, wire::Qpn local, wire::Qpn remote);

// Looks up how packets get from `source`, an address of the netdev, to `destination`. Asks the kernel. 0, or
// ENETUNREACH.
int look_up_route(net::NetView& view, const net::Netdev& netdev, const wire::IpAddress& source,
                  const wire::IpAddress& destination, Destination::Route& route);

// The path of a connected QP; of an address handle of UD, which is of no QP.
Path make_path(const transport::AddressVector& address, std::shared_ptr<Destination> to, wire::Qpn local,
               wire::Qpn remote);
Path make_path(const transport::AddressVector& address, std::shared_ptr<Destination> to);

}  // namespace uroce::engine

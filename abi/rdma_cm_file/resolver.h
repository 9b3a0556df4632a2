// SPDX-License-Identifier: BSD-2-Clause
// Where a connection leaves this host: source address, netdev, next hop. Asks NetView; nothing here waits.
#pragma once

#include <memory>
#include <optional>

#include "abi/rdma_cm_file/address.h"
#include "engine/net/net_view.h"

namespace uroce::rdma_cm {

struct Resolution {
  int error = 0;  // errno value: ENETUNREACH; ENODEV comes later, when somebody asks for the device
  int netdev = 0;
  wire::IpAddress source{};
  net::Route route{};
  std::shared_ptr<net::NextHop> next_hop{};  // null: none is needed
  bool anywhere = false;                     // the destination is a wildcard: any device, and no route

  // The next hop's MAC address is known, or not needed.
  bool complete() const { return next_hop == nullptr || next_hop->neighbour().has_mac(); }
};

// From `source`, unless that is a wildcard, to `destination`, which is IPv4 or IPv6, as is the source.
// `loopback_device`: `lo` is a device, and its addresses are no wildcards.
Resolution find_way(net::NetView& view, const Address& source, const Address& destination, bool loopback_device);

// The netdev that has this address; link-local ones with their scope.
std::optional<net::Netdev> netdev_of(net::NetView& view, const Address& address);

// The InfiniBand path MTU (1 is 256 bytes, 5 is 4096) for packets over IP of this MTU, as Linux reckons it for rdma_cm.
uint8_t path_mtu_code(uint32_t ip_mtu);

}  // namespace uroce::rdma_cm

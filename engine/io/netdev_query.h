// SPDX-License-Identifier: BSD-2-Clause
// What the packet I/O needs to know of a netdev at the moment it opens it. Used by AfXdp.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::io {

// IFF_UP. False also when the netdev does not exist.
bool netdev_is_up(const std::string& netdev);

// Frames may come without the VLAN tag that they had on the wire: hardware has taken it (rx-vlan-offload), or nobody
// has put it in, as between the ends of a veth pair. To an XDP program one of any VLAN looks as if it were untagged.
bool strips_vlan_tags(const std::string& netdev);

// The kernel makes no netdev with more.
constexpr uint32_t kMaxRxQueues = 4096;

// Receive queues in use (ethtool -l), kMaxRxQueues at most; 1 when the driver does not tell.
uint32_t rx_queue_count(const std::string& netdev);

}  // namespace uroce::io

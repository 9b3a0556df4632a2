// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "wire/envelope.h"

namespace uroce::engine {

// State of the one port of a device, from its netdev.
struct PortStatus {
  bool active = false;
  bool up = false;          // switched on, with or without carrier
  uint32_t netdev_mtu = 0;  // bytes
  uint32_t active_mtu = 0;  // path MTU: the largest of 256..4096 that fits the netdev (and the packet I/O once open)
  uint32_t speed_mbps = 0;  // 0 = unknown
  uint32_t pkey_violations = 0;       // packets with a wrong P_Key, since the engine was created
  uint32_t qkey_violations = 0;       // UD packets with a wrong Q_Key
  std::vector<wire::IpAddress> gids;  // the GID table, all RoCE v2; an unspecified address is an empty entry
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// What a client asks of a port.
#pragma once

#include <cstdint>

#include "wire/cma_header.h"
#include "wire/envelope.h"

namespace uroce::cm {

struct Bind {
  wire::PortSpace space = wire::PortSpace::kTcp;
  wire::IpAddress address{};  // unspecified: all
  bool v4 = true;             // IPv4; tells 0.0.0.0 from ::
  bool v6_only = false;       // :: leaves IPv4 to others
  uint32_t netdev = 0;        // of a link-local address
  uint16_t port = 0;          // 0: any that nobody has
  bool reuse_address = false;
  bool privileged = false;  // may have ports below 1024

  friend bool operator==(const Bind&, const Bind&) = default;
};

}  // namespace uroce::cm

// SPDX-License-Identifier: BSD-2-Clause
// The MAC address of an IP multicast group.
#pragma once

#include "wire/envelope.h"

namespace uroce::net {

// RFC 1112 section 6.4 and RFC 2464 section 7.
inline wire::MacAddress multicast_mac(const wire::IpAddress& group) {
  const uint8_t* b = group.bytes.data();
  if (group.is_v4()) return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
  return {0x33, 0x33, b[12], b[13], b[14], b[15]};
}

}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

#include "wire/envelope.h"

namespace uroce::net {

// Of the device on a netdev: modified EUI-64 of the MAC address (RFC 4291 appendix A), as kernel RoCE drivers form
// their GUID. Host order.
inline uint64_t device_guid(const wire::MacAddress& mac) {
  const uint8_t bytes[8] = {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  uint64_t guid = 0;
  for (const uint8_t byte : bytes) guid = guid << 8 | byte;
  return guid;
}

}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

#include "engine/net/net_view.h"

namespace uroce::net {

// Of the device on a netdev: modified EUI-64 of the MAC address (RFC 4291 appendix A), as kernel RoCE drivers form
// their GUID. Where there is none, an identifier of local scope (its bit 57 is 0, and bit 56, of groups, too) made of
// the first address, which other hosts do not have, or else of the name: FNV-1a. Host order.
inline uint64_t device_guid(const Netdev& netdev) {
  if (netdev.type != LinkType::kEthernet) {
    uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
    if (netdev.addresses.empty()) {
      for (const char letter : netdev.name) add(static_cast<uint8_t>(letter));
    } else {
      for (const uint8_t byte : netdev.addresses.front().bytes) add(byte);
    }
    return hash & ~(uint64_t{3} << 56);
  }
  const wire::MacAddress& mac = netdev.mac;
  const uint8_t bytes[8] = {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  uint64_t guid = 0;
  for (const uint8_t byte : bytes) guid = guid << 8 | byte;
  return guid;
}

}  // namespace uroce::net

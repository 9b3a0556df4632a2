// SPDX-License-Identifier: BSD-2-Clause
// What the RDMA IP CM service (IBTA annex A11) adds to REQ and SIDR_REQ: the addresses and ports of a connection, at
// the beginning of the private data, and service ids made of a port space and a port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/cm_message.h"
#include "wire/envelope.h"

namespace uroce::wire {

enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

constexpr ServiceId service_id(PortSpace space, uint16_t port) {
  return ServiceId{uint64_t{static_cast<uint16_t>(space)} << 16 | port};
}
constexpr uint16_t service_port(ServiceId id) {
  return static_cast<uint16_t>(id);
}

constexpr PortSpace port_space(ServiceId id) {
  return PortSpace{static_cast<uint16_t>(static_cast<uint64_t>(id) >> 16)};
}
// "TCP"; null for ids that are not made of one of the four port spaces.
const char* port_space_name(ServiceId id);

// The destination port is in the service id.
struct CmaHeader {
  static constexpr size_t kSize = 36;

  bool v4 = true;
  uint16_t source_port = 0;
  IpAddress source, destination;  // IPv4: in their mapped form

  // Nothing if it has another version or is of neither IP version.
  static std::optional<CmaHeader> parse(std::span<const uint8_t> private_data);
  // Writes kSize bytes.
  void emit(uint8_t* out) const;

  friend bool operator==(const CmaHeader&, const CmaHeader&) = default;
};

}  // namespace uroce::wire

// SPDX-License-Identifier: BSD-2-Clause
#include "wire/cma_header.h"

#include <algorithm>

#include "wire/bytes.h"

namespace uroce::wire {
namespace {

constexpr size_t kSourceAt = 4, kDestinationAt = 20, kV4At = 12;

IpAddress load_address(const uint8_t* sixteen, bool v4) {
  return v4 ? IpAddress::v4(sixteen + kV4At) : IpAddress::v6(sixteen);
}

void store_address(uint8_t* sixteen, const IpAddress& address, bool v4) {
  if (v4) {
    std::copy_n(address.v4_bytes(), 4, sixteen + kV4At);
  } else {
    std::copy_n(address.bytes.begin(), 16, sixteen);
  }
}

}  // namespace

const char* port_space_name(ServiceId id) {
  if (static_cast<uint64_t>(id) >> 32 != 0) return nullptr;
  switch (port_space(id)) {
    case PortSpace::kIpoib:
      return "IPoIB";
    case PortSpace::kTcp:
      return "TCP";
    case PortSpace::kUdp:
      return "UDP";
    case PortSpace::kIb:
      return "IB";
  }
  return nullptr;
}

std::optional<CmaHeader> CmaHeader::parse(std::span<const uint8_t> private_data) {
  if (private_data.size() < kSize) return std::nullopt;
  const uint8_t* const bytes = private_data.data();
  const uint8_t ip_version = bytes[1] >> 4;
  if (bytes[0] != 0 || (ip_version != 4 && ip_version != 6)) return std::nullopt;
  const bool v4 = ip_version == 4;
  return CmaHeader{.v4 = v4,
                   .source_port = load_be16(bytes + 2),
                   .source = load_address(bytes + kSourceAt, v4),
                   .destination = load_address(bytes + kDestinationAt, v4)};
}

void CmaHeader::emit(uint8_t* out) const {
  std::fill_n(out, kSize, uint8_t{0});
  out[1] = v4 ? 4 << 4 : 6 << 4;
  store_be16(out + 2, source_port);
  store_address(out + kSourceAt, source, v4);
  store_address(out + kDestinationAt, destination, v4);
}

}  // namespace uroce::wire

// SPDX-License-Identifier: BSD-2-Clause
// Socket addresses as the rdma_cm file has them. What comes in is of a length that the caller has checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "abi/rdma_cm_file/abi.h"
#include "wire/envelope.h"

namespace uroce::rdma_cm {

enum class Family : uint8_t { kNone, kV4, kV6, kIb };

struct Address {
  Family family = Family::kNone;
  wire::IpAddress ip{};  // IPv4: in its mapped form; of kIb the GID
  uint16_t port = 0;
  uint32_t scope = 0;              // IPv6: the netdev of a link-local address
  uint32_t flow_info = 0;          // IPv6, host order
  uint64_t sid = 0, sid_mask = 0;  // kIb, host order

  // 0.0.0.0 or ::.
  bool is_unspecified() const;
  bool is_loopback() const;
  // It does not say where. Of 127.0.0.1 and ::1 this is so, as in Linux, unless `lo` is a device.
  bool is_wildcard(bool loopback_device) const { return is_unspecified() || (is_loopback() && !loopback_device); }
  // Bytes of the socket address; 0 without one.
  uint16_t size() const;
};

// Bytes of a socket address of the family that stands at the beginning of `bytes`; 0: of none that is known.
uint16_t address_size(std::span<const uint8_t> bytes);
// `bytes` holds at least address_size(bytes), which is not 0.
Address parse_address(std::span<const uint8_t> bytes);
// As much as fits.
void store_address(const Address& address, std::span<uint8_t> to);
// As a sockaddr_ib: the GID, and the service id of port space and port.
abi::SockaddrIb as_gid(const Address& address, uint16_t port_space);

}  // namespace uroce::rdma_cm

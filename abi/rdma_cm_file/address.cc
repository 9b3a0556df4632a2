// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/address.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <endian.h>
#include <netinet/in.h>

namespace uroce::rdma_cm {
namespace {

constexpr uint16_t kPkey = 0xffff;

template <class Sockaddr>
Sockaddr load(std::span<const uint8_t> bytes) {
  Sockaddr value{};
  std::memcpy(&value, bytes.data(), std::min(sizeof(value), bytes.size()));
  return value;
}

template <class Sockaddr>
void store(const Sockaddr& value, std::span<uint8_t> to) {
  std::memcpy(to.data(), &value, std::min(sizeof(value), to.size()));
}

}  // namespace

bool Address::is_unspecified() const {
  if (family != Family::kV4) return ip.is_unspecified();
  return std::all_of(ip.v4_bytes(), ip.v4_bytes() + 4, [](uint8_t byte) { return byte == 0; });
}

bool Address::is_loopback() const {
  constexpr std::array<uint8_t, 16> kV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return family == Family::kV4 ? ip.v4_bytes()[0] == 127 : ip.bytes == kV6;
}

uint16_t Address::size() const {
  switch (family) {
    case Family::kV4:
      return sizeof(sockaddr_in);
    case Family::kV6:
      return sizeof(sockaddr_in6);
    case Family::kIb:
      return sizeof(abi::SockaddrIb);
    case Family::kNone:
      break;
  }
  return 0;
}

uint16_t address_size(std::span<const uint8_t> bytes) {
  switch (load<uint16_t>(bytes)) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case abi::kFamilyIb:
      return sizeof(abi::SockaddrIb);
    default:
      return 0;
  }
}

Address parse_address(std::span<const uint8_t> bytes) {
  Address address;
  switch (load<uint16_t>(bytes)) {
    case AF_INET: {
      const auto v4 = load<sockaddr_in>(bytes);
      address.family = Family::kV4;
      address.ip = wire::IpAddress::v4(reinterpret_cast<const uint8_t*>(&v4.sin_addr));
      address.port = ntohs(v4.sin_port);
      break;
    }
    case AF_INET6: {
      const auto v6 = load<sockaddr_in6>(bytes);
      address.family = Family::kV6;
      address.ip = wire::IpAddress::v6(v6.sin6_addr.s6_addr);
      address.port = ntohs(v6.sin6_port);
      address.scope = v6.sin6_scope_id;
      address.flow_info = ntohl(v6.sin6_flowinfo);
      break;
    }
    case abi::kFamilyIb: {
      const auto ib = load<abi::SockaddrIb>(bytes);
      address.family = Family::kIb;
      address.ip = wire::IpAddress::v6(ib.sib_addr.data());
      address.sid = be64toh(ib.sib_sid);
      address.sid_mask = be64toh(ib.sib_sid_mask);
      address.port = static_cast<uint16_t>(address.sid & address.sid_mask);
      break;
    }
    default:
      break;
  }
  return address;
}

void store_address(const Address& address, std::span<uint8_t> to) {
  std::fill(to.begin(), to.end(), uint8_t{0});
  switch (address.family) {
    case Family::kV4: {
      sockaddr_in v4{};
      v4.sin_family = AF_INET;
      v4.sin_port = htons(address.port);
      std::memcpy(&v4.sin_addr, address.ip.v4_bytes(), sizeof(v4.sin_addr));
      return store(v4, to);
    }
    case Family::kV6: {
      sockaddr_in6 v6{};
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(address.port);
      v6.sin6_flowinfo = htonl(address.flow_info);
      v6.sin6_scope_id = address.scope;
      std::memcpy(&v6.sin6_addr, address.ip.bytes.data(), sizeof(v6.sin6_addr));
      return store(v6, to);
    }
    case Family::kIb: {
      abi::SockaddrIb ib{};
      ib.sib_family = abi::kFamilyIb;
      ib.sib_pkey = htobe16(kPkey);
      ib.sib_addr = address.ip.bytes;
      ib.sib_sid = htobe64(address.sid);
      ib.sib_sid_mask = htobe64(address.sid_mask);
      return store(ib, to);
    }
    case Family::kNone:
      return;
  }
}

abi::SockaddrIb as_gid(const Address& address, uint16_t port_space) {
  abi::SockaddrIb ib{};
  if (address.family == Family::kIb) {
    store_address(address, std::span(reinterpret_cast<uint8_t*>(&ib), sizeof(ib)));
    return ib;
  }
  ib.sib_family = abi::kFamilyIb;
  ib.sib_pkey = htobe16(kPkey);
  ib.sib_addr = address.is_unspecified() ? std::array<uint8_t, 16>{} : address.ip.bytes;
  ib.sib_sid = htobe64(uint64_t{port_space} << 16 | address.port);
  return ib;
}

}  // namespace uroce::rdma_cm

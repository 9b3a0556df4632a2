// SPDX-License-Identifier: BSD-2-Clause
// Values that verbs and the engine express differently: path MTUs, GIDs, address vectors.
#pragma once

#include <cstdint>
#include <cstring>
#include <infiniband/verbs.h>

#include "engine/transport/common/qp_state.h"

namespace uroce::verbs {

// The number in an enum field of the application, which may be none of the enumerators, or uninitialised where an
// attribute mask says that it does not count.
template <class Enum>
uint32_t number_in(const Enum& field) {
  static_assert(sizeof(field) == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

// Bytes for a number of enum ibv_mtu; 0: not one of them.
constexpr uint32_t mtu_from_verbs(uint32_t mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

// The largest enum ibv_mtu that `bytes` hold; IBV_MTU_256 for less.
constexpr ibv_mtu mtu_to_verbs(uint32_t bytes) {
  int mtu = IBV_MTU_4096;
  while (mtu > IBV_MTU_256 && 128u << mtu > bytes) --mtu;
  return static_cast<ibv_mtu>(mtu);
}

inline wire::IpAddress gid_from_verbs(const ibv_gid& gid) {
  return wire::IpAddress::v6(gid.raw);
}

inline ibv_gid gid_to_verbs(const wire::IpAddress& address) {
  ibv_gid gid{};
  std::memcpy(gid.raw, address.bytes.data(), sizeof(gid.raw));
  return gid;
}

// 0, or EINVAL: not global (RoCE v2 has no other kind), or not port 1.
int address_from_verbs(const ibv_ah_attr& from, transport::AddressVector& to);
ibv_ah_attr address_to_verbs(const transport::AddressVector& from);

}  // namespace uroce::verbs

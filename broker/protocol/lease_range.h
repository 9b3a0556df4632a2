// SPDX-License-Identifier: BSD-2-Clause
// What a client leases: QPNs that have the same upper ten bits, one range for each device that it opens.
#pragma once

#include <cstdint>

namespace uroce::broker {

struct LeaseRange {
  static constexpr uint32_t kBits = 14;
  // Numbers of ranges that can be leased. 0 has QPN 0 and 1, which are nobody's, and 1023 the QPN of multicast packets.
  static constexpr uint32_t kFirstNumber = 1, kLastNumber = 1022;

  uint32_t number = 0;

  static constexpr uint32_t count() { return uint32_t{1} << kBits; }
  constexpr uint32_t first() const { return number << kBits; }
  constexpr bool has(uint32_t qpn) const { return qpn >> kBits == number; }
  bool operator==(const LeaseRange&) const = default;
};

}  // namespace uroce::broker

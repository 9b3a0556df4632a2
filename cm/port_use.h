// SPDX-License-Identifier: BSD-2-Clause
// What the bindings of one port leave to others, by the rules of Linux (cm.md "Ports"). Counts, so that it costs the
// same to ask however many there are. Part of PortSpaces.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "cm/bind.h"

namespace uroce::cm {

class PortUse {
 public:
  void add(const Bind& bind, bool listening) { count(bind, listening, 1); }
  void remove(const Bind& bind, bool listening) { count(bind, listening, -1); }
  bool is_free() const { return bindings_ == 0; }
  // 0, or why `wanted` cannot be beside those that are there: EADDRNOTAVAIL if a wildcard is involved, as in Linux.
  int conflict(const Bind& wanted, bool may_share) const;

 private:
  // Whom a binding meets: IPv4, IPv6, or both, which only :: without V6ONLY is.
  enum Versions : size_t { kV4, kV6, kBoth };
  struct Count {
    uint32_t sharing = 0;  // with REUSEADDR, and not listening
    uint32_t owning = 0;
    bool is_in_the_way(bool shares) const { return owning > 0 || (sharing > 0 && !shares); }
  };
  struct OfVersions {
    Count wildcards, addresses;
  };
  using Place = std::tuple<bool, decltype(wire::IpAddress::bytes), uint32_t>;

  static Versions versions_of(const Bind& bind);
  static bool meet(Versions a, Versions b) { return a == b || a == kBoth || b == kBoth; }
  static Place place_of(const Bind& bind) { return {bind.v4, bind.address.bytes, bind.netdev}; }
  void count(const Bind& bind, bool listening, int sign);

  std::array<OfVersions, 3> by_versions_;
  std::map<Place, Count> places_;  // that are not wildcards
  uint32_t bindings_ = 0;
};

}  // namespace uroce::cm

// SPDX-License-Identifier: BSD-2-Clause
// Addresses that have shown that they get what is sent there: a message came from them with an id that only such a
// message had told. The source of a request may be forged, and what is sent there without having been asked for is
// somebody else's flood; so it is little (Limits::repeats_unproven) until its address is one of these. Part of
// ConnectionManager.
#pragma once

#include <cstdint>
#include <deque>
#include <set>

#include "cm/types.h"

namespace uroce::cm {

class ProvenPeers {
 public:
  explicit ProvenPeers(uint32_t most) : most_(most) {}

  // Beyond `most` the oldest one is forgotten.
  void add(const wire::IpAddress& address) {
    if (!addresses_.insert(address.bytes).second) return;
    order_.push_back(address.bytes);
    if (order_.size() <= most_) return;
    addresses_.erase(order_.front());
    order_.pop_front();
  }
  bool has(const wire::IpAddress& address) const { return addresses_.contains(address.bytes); }

 private:
  using Address = decltype(wire::IpAddress::bytes);
  const uint32_t most_;
  std::set<Address> addresses_;
  std::deque<Address> order_;
};

}  // namespace uroce::cm

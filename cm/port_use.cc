// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_use.h"

#include <cerrno>

namespace uroce::cm {

PortUse::Versions PortUse::versions_of(const Bind& bind) {
  if (bind.v4) return kV4;
  return bind.v6_only || !bind.address.is_unspecified() ? kV6 : kBoth;
}

void PortUse::count(const Bind& bind, bool listening, int sign) {
  const auto step = static_cast<uint32_t>(sign);
  const auto add = [&](Count& count) { (bind.reuse_address && !listening ? count.sharing : count.owning) += step; };
  bindings_ += step;
  OfVersions& all = by_versions_[versions_of(bind)];
  if (bind.address.is_unspecified()) return add(all.wildcards);
  add(all.addresses);
  const auto place = places_.try_emplace(place_of(bind)).first;
  add(place->second);
  if (!place->second.is_in_the_way(false)) places_.erase(place);
}

int PortUse::conflict(const Bind& wanted, bool may_share) const {
  const bool shares = may_share && wanted.reuse_address;
  const bool is_any = wanted.address.is_unspecified();
  const Versions versions = versions_of(wanted);
  for (const Versions others : {kV4, kV6, kBoth}) {
    const OfVersions& there = by_versions_[others];
    if (!meet(versions, others)) continue;
    if (there.wildcards.is_in_the_way(shares)) return EADDRNOTAVAIL;
    if (is_any && there.addresses.is_in_the_way(shares)) return EADDRNOTAVAIL;
  }
  const auto same = is_any ? places_.end() : places_.find(place_of(wanted));
  return same != places_.end() && same->second.is_in_the_way(shares) ? EADDRINUSE : 0;
}

}  // namespace uroce::cm

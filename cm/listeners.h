// SPDX-License-Identifier: BSD-2-Clause
// Who listens for which service ids, and which listener a request is for.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "cm/shares.h"
#include "cm/types.h"

namespace uroce::cm {

struct Listener {
  Id id = kNoId;
  ClientId client{};
  UserId user{};
  Listen listen;
  std::set<Id> untaken{};              // requests that the application has not been told of
  std::map<uint64_t, Id> half_open{};  // requests that came through it and are not established, the oldest first
};

class Listeners {
 public:
  explicit Listeners(const Limits& limits)
      : places_(limits.places), masks_of_client_(limits.masks_of_client), masks_(limits.masks) {}

  // EADDRINUSE: somebody listens exactly there. ENOSPC: too many for this service id, or too many with masks.
  int add(Id id, ClientId client, const Account& account, const Listen& listen);
  void remove(Id id);
  Listener* find(Id id);
  const Listener* find(Id id) const { return const_cast<Listeners*>(this)->find(id); }

  // The listener for a request: the one that is most specific about the address. `names`: the CMA header of the
  // request, if it has one that can be read.
  Listener* match(wire::ServiceId service, bool datagrams, const std::optional<wire::CmaHeader>& names,
                  const Datagram& datagram);
  // Somebody listens for it, wherever.
  bool has(wire::ServiceId service) const;

  size_t size() const { return listeners_.size(); }
  // In the order of ids, behind `after`, while `visit` returns true. False: it has not.
  template <class Visit>
  bool for_each_after(Id after, Visit&& visit) const {
    for (auto next = listeners_.upper_bound(after); next != listeners_.end(); ++next) {
      if (!visit(next->second)) return false;
    }
    return true;
  }

 private:
  // By mask, of which there are few (Limits::masks), then by the bits of the service id that it leaves: as few as
  // Limits::places.
  using Services = std::multimap<uint64_t, Id>;

  std::map<Id, Listener> listeners_;
  std::map<uint64_t, Services> services_;
  const uint32_t places_, masks_of_client_;
  Shares masks_;  // listeners that have one
  std::map<ClientId, uint32_t> masks_of_clients_;
};

}  // namespace uroce::cm

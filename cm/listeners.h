// SPDX-License-Identifier: BSD-2-Clause
// Who listens for which service ids, and which listener a request is for.
#pragma once

#include <map>
#include <optional>

#include "cm/types.h"

namespace uroce::cm {

struct Listener {
  Id id = kNoId;
  ClientId client{};
  Listen listen;
  uint32_t untaken = 0;    // requests that the application has not been told of
  uint32_t half_open = 0;  // requests that came through it and are not established
};

class Listeners {
 public:
  // False: somebody listens exactly there.
  bool add(Id id, ClientId client, const Listen& listen);
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
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [id, listener] : listeners_) visit(listener);
  }

 private:
  // By mask, of which there are few, then by the bits of the service id that it leaves.
  using Services = std::multimap<uint64_t, Id>;

  std::map<Id, Listener> listeners_;
  std::map<uint64_t, Services> services_;
};

}  // namespace uroce::cm

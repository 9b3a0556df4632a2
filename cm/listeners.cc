// SPDX-License-Identifier: BSD-2-Clause
#include "cm/listeners.h"

#include <algorithm>
#include <cerrno>

namespace uroce::cm {
namespace {

bool same_place(const Listen& a, const Listen& b) {
  return a.ip == b.ip && a.datagrams == b.datagrams && a.address == b.address && a.netdev == b.netdev &&
         (!a.address.is_unspecified() || (a.takes_v4 && b.takes_v4) || (a.takes_v6 && b.takes_v6));
}

bool has_mask(const Listen& listen) {
  return listen.service_mask != UINT64_MAX;
}

// How well it fits; 0: not at all.
int fit(const Listen& listen, const std::optional<wire::CmaHeader>& names, const Datagram& datagram) {
  if (listen.netdev != 0 && listen.netdev != datagram.netdev) return 0;
  // An address of this host that the datagram was not sent to: somebody wants to reach what listens elsewhere.
  if (listen.ip && (!names || names->destination != datagram.destination)) return 0;
  const int netdev = listen.netdev != 0 ? 1 : 0;
  if (!listen.address.is_unspecified()) return listen.address == datagram.destination ? 3 + netdev : 0;
  const bool takes = datagram.destination.is_v4() ? listen.takes_v4 : listen.takes_v6;
  return takes ? 1 + netdev : 0;
}

}  // namespace

int Listeners::add(Id id, ClientId client, const Account& account, const Listen& listen) {
  const bool masks = has_mask(listen);
  const auto own = masks_of_clients_.find(client);
  const bool has_enough = own != masks_of_clients_.end() && own->second >= masks_of_client_;
  if (masks && (has_enough || !masks_.has_room(account))) return ENOSPC;
  const uint64_t service = static_cast<uint64_t>(listen.service) & listen.service_mask;
  Services& services = services_[listen.service_mask];
  uint32_t places = 0;
  const auto [begin, end] = services.equal_range(service);
  for (auto other = begin; other != end; ++other, ++places) {
    if (same_place(listeners_.at(other->second).listen, listen)) return EADDRINUSE;
  }
  if (places >= places_) return ENOSPC;
  services.emplace(service, id);
  listeners_[id] = {.id = id, .client = client, .user = account.user, .listen = listen};
  if (!masks) return 0;
  masks_.add(account.user);
  ++masks_of_clients_[client];
  return 0;
}

void Listeners::remove(Id id) {
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) return;
  const Listener& listener = found->second;
  const Listen& listen = listener.listen;
  const auto services = services_.find(listen.service_mask);
  const auto [begin, end] = services->second.equal_range(static_cast<uint64_t>(listen.service) & listen.service_mask);
  services->second.erase(std::find_if(begin, end, [id](const auto& other) { return other.second == id; }));
  if (services->second.empty()) services_.erase(services);
  if (has_mask(listen)) {
    masks_.remove(listener.user);
    const auto own = masks_of_clients_.find(listener.client);
    if (--own->second == 0) masks_of_clients_.erase(own);
  }
  listeners_.erase(found);
}

Listener* Listeners::find(Id id) {
  const auto found = listeners_.find(id);
  return found == listeners_.end() ? nullptr : &found->second;
}

Listener* Listeners::match(wire::ServiceId service, bool datagrams, const std::optional<wire::CmaHeader>& names,
                           const Datagram& datagram) {
  Listener* best = nullptr;
  int best_fit = 0;
  for (auto& [mask, services] : services_) {
    const auto [begin, end] = services.equal_range(static_cast<uint64_t>(service) & mask);
    for (auto other = begin; other != end; ++other) {
      Listener& listener = listeners_.at(other->second);
      const int how_well = listener.listen.datagrams == datagrams ? fit(listener.listen, names, datagram) : 0;
      if (how_well > best_fit) best = &listener, best_fit = how_well;
    }
  }
  return best;
}

bool Listeners::has(wire::ServiceId service) const {
  return std::any_of(services_.begin(), services_.end(), [&](const auto& of_mask) {
    return of_mask.second.count(static_cast<uint64_t>(service) & of_mask.first) > 0;
  });
}

}  // namespace uroce::cm

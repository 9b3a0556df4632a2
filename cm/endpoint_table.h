// SPDX-License-Identifier: BSD-2-Clause
// All endpoints, the ways to find one, and their timers. Ordered containers: what the network chooses as keys cannot
// make them slow, and a run is a function of its seed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "cm/endpoint.h"

namespace uroce::cm {

class EndpointTable {
 public:
  // They stay where they are until they are removed. `id` is new.
  Endpoint& add(Id id, ClientId client);
  void remove(Endpoint& endpoint);
  Endpoint* find(Id id);
  const Endpoint* find(Id id) const { return const_cast<EndpointTable*>(this)->find(id); }

  // What the other side's request has made, by its name for it. A newer request with the same name takes its place.
  enum class Request : uint8_t { kReq, kSidrReq };
  void name_request(Request kind, Endpoint& endpoint);
  Endpoint* find_request(Request kind, const wire::IpAddress& peer, Id remote_id);

  // The user's endpoint whose QP at the other side this is. Others may say that they have a connection with it, too.
  void take_peer(Endpoint& endpoint);
  void leave_peer(Endpoint& endpoint);
  Endpoint* find_peer(UserId user, const wire::IpAddress& peer, wire::Guid guid, wire::Qpn qpn);

  // One timer each. kNever: none. Those that have ended are also counted, and can be asked for the one that is due
  // next.
  void schedule(Endpoint& endpoint, Time deadline);
  Time deadline() const;
  Endpoint* expired(Time now);
  size_t ended() const { return timers_[kEnded].size(); }
  Endpoint* next_ended() { return timers_[kEnded].empty() ? nullptr : find(timers_[kEnded].begin()->second); }

  size_t size() const { return endpoints_.size(); }
  // In the order of ids, behind `after`, while `visit` returns true. False: it has not.
  template <class Visit>
  bool for_each_after(Id after, Visit&& visit) const {
    for (auto next = endpoints_.upper_bound(after); next != endpoints_.end(); ++next) {
      if (!visit(next->second)) return false;
    }
    return true;
  }

 private:
  using Address = std::array<uint8_t, 16>;
  using RequestKey = std::tuple<Request, Address, Id>;
  using PeerKey = std::tuple<UserId, Address, wire::Guid, uint32_t>;
  using Timers = std::set<std::pair<Time, Id>>;
  enum : size_t { kRunning, kEnded };

  static RequestKey request_key(Request kind, const Endpoint& e) { return {kind, e.peer.bytes, e.remote_id}; }
  static PeerKey peer_key(const Endpoint& e) { return {e.user, e.peer.bytes, e.qp.remote_guid, e.qp.dest_qpn.value()}; }
  void forget_request(Request kind, const Endpoint& endpoint);

  std::map<Id, Endpoint> endpoints_;
  std::map<RequestKey, Id> requests_;
  std::map<PeerKey, Id> peers_;
  std::array<Timers, 2> timers_;
};

}  // namespace uroce::cm

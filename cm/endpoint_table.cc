// SPDX-License-Identifier: BSD-2-Clause
#include "cm/endpoint_table.h"

namespace uroce::cm {

Endpoint& EndpointTable::add(Id id, ClientId client) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.id = id;
  endpoint.client = client;
  return endpoint;
}

void EndpointTable::remove(Endpoint& endpoint) {
  schedule(endpoint, kNever);
  leave_peer(endpoint);
  forget_request(Request::kReq, endpoint);
  forget_request(Request::kSidrReq, endpoint);
  endpoints_.erase(endpoint.id);
}

Endpoint* EndpointTable::find(Id id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

void EndpointTable::name_request(Request kind, Endpoint& endpoint) {
  requests_[request_key(kind, endpoint)] = endpoint.id;
}

Endpoint* EndpointTable::find_request(Request kind, const wire::IpAddress& peer, Id remote_id) {
  const auto found = requests_.find({kind, peer.bytes, remote_id});
  return found == requests_.end() ? nullptr : find(found->second);
}

void EndpointTable::forget_request(Request kind, const Endpoint& endpoint) {
  const auto found = requests_.find(request_key(kind, endpoint));
  if (found != requests_.end() && found->second == endpoint.id) requests_.erase(found);
}

void EndpointTable::take_peer(Endpoint& endpoint) {
  peers_[peer_key(endpoint)] = endpoint.id;
}

void EndpointTable::leave_peer(Endpoint& endpoint) {
  const auto found = peers_.find(peer_key(endpoint));
  if (found != peers_.end() && found->second == endpoint.id) peers_.erase(found);
}

Endpoint* EndpointTable::find_peer(UserId user, const wire::IpAddress& peer, wire::Guid guid, wire::Qpn qpn) {
  const auto found = peers_.find({user, peer.bytes, guid, qpn.value()});
  return found == peers_.end() ? nullptr : find(found->second);
}

void EndpointTable::schedule(Endpoint& endpoint, Time deadline) {
  for (Timers& timers : timers_) timers.erase({endpoint.deadline, endpoint.id});
  endpoint.deadline = deadline;
  if (deadline != kNever) timers_[info_of(endpoint.state).ended ? kEnded : kRunning].emplace(deadline, endpoint.id);
}

Time EndpointTable::deadline() const {
  Time next = kNever;
  for (const Timers& timers : timers_) {
    if (!timers.empty()) next = std::min(next, timers.begin()->first);
  }
  return next;
}

Endpoint* EndpointTable::expired(Time now) {
  for (const Timers& timers : timers_) {
    if (!timers.empty() && timers.begin()->first <= now) return find(timers.begin()->second);
  }
  return nullptr;
}

}  // namespace uroce::cm

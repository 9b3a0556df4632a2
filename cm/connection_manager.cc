// SPDX-License-Identifier: BSD-2-Clause
// The part of ConnectionManager that is about commands, time, states and sending. What arrives: arrivals.cc.
#include "cm/connection_manager.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "cm/messages.h"
#include "cm/timing.h"

namespace uroce::cm {
namespace {

bool can_be_reached(const wire::IpAddress& address) {
  return !address.is_unspecified() && !address.is_multicast();
}

// About which message a REJ is that the client sends.
wire::CmAnswered rejected_message(State state) {
  switch (state) {
    case State::kReqReceived:
      return wire::CmAnswered::kReq;
    case State::kRepReceived:
      return wire::CmAnswered::kRep;
    default:
      return wire::CmAnswered::kOther;
  }
}

}  // namespace

// --- commands --------------------------------------------------------------------------------------------------------

Opened ConnectionManager::listen(ClientId client, const Listen& listen) {
  const Account account = output_.account_of(client);
  if (!room_for(client, account)) return {.error = ENFILE};
  const Id id = fresh_id();
  if (const int error = listeners_.add(id, client, account, listen); error != 0) return {.error = error};
  ids_.add(account.user);
  waiting_.begun();
  clients_[client].insert(id);
  return {.id = id};
}

Opened ConnectionManager::connect(ClientId client, const Connect& connect, Time now) {
  const bool datagrams = connect.transport == Transport::kUd;
  if (!fits(connect.data, datagrams ? kSidrReqData : kReqData, connect.names.has_value())) return {.error = EINVAL};
  if (!can_be_reached(connect.path.remote)) return {.error = EINVAL};
  const Account account = output_.account_of(client);
  if (!room_for(client, account)) return {.error = ENFILE};
  Endpoint& endpoint = open(client, account, fresh_id());
  endpoint.transport = connect.transport;
  endpoint.service = connect.service;
  endpoint.local_qpn = connect.parameters.qpn;
  endpoint.peer = connect.path.remote;
  endpoint.qp.path = connect.path;
  endpoint.qp.rq_psn = wire::Psn(random_());
  endpoint.qp.max_rd_atomic = connect.parameters.initiator_depth;
  endpoint.qp.max_dest_rd_atomic = connect.parameters.responder_resources;
  endpoint.qp.retry_count = std::min<uint8_t>(connect.parameters.retry_count, 7);
  endpoint.transaction = fresh_transaction();
  endpoint.patience = datagrams ? kSidrPatience : requester_patience(connect.path.ack_timeout);
  endpoint.max_retries = kMaxRetries;
  counters_.add(Counter::kConnects);
  if (datagrams) {
    send(endpoint, make_sidr_req(endpoint, connect), endpoint.transaction, connect.ece.options);
  } else {
    send(endpoint, make_req(endpoint, connect), endpoint.transaction, connect.ece.options);
  }
  enter(endpoint, datagrams ? State::kSidrSent : State::kReqSent, now);
  await(endpoint, now);
  return {.id = endpoint.id};
}

int ConnectionManager::take(ClientId client, Id id) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  mark_taken(*endpoint);
  return 0;
}

int ConnectionManager::accept(ClientId client, Id id, const Accept& accept, Time now) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  Endpoint& e = *endpoint;
  const bool datagrams = e.state == State::kSidrReceived;
  if (!datagrams && e.state != State::kReqReceived) return EINVAL;
  if (!fits(accept.data, datagrams ? kSidrRepData : kRepData, false)) return EINVAL;
  mark_taken(e);
  e.local_qpn = accept.parameters.qpn;
  if (datagrams) {
    send(e, make_sidr_rep(e, accept), e.transaction, accept.ece.options);
    enter(e, State::kSidrReplied, now);
    return 0;
  }
  e.qp.max_rd_atomic = accept.parameters.initiator_depth;
  e.qp.max_dest_rd_atomic = accept.parameters.responder_resources;
  e.qp.path.ack_timeout = ack_timeout(accept.ack_delay, lifetime_of(e.qp.path.ack_timeout));
  send(e, make_rep(e, accept), e.transaction, accept.ece.options);
  enter(e, State::kRepSent, now);
  await(e, now);
  return 0;
}

int ConnectionManager::confirm(ClientId client, Id id, const PrivateData& data, Time now) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  if (endpoint->state != State::kRepReceived) return EINVAL;
  send(*endpoint, make_rtu(*endpoint, data), endpoint->transaction);
  enter(*endpoint, State::kEstablished, now);
  return 0;
}

int ConnectionManager::reject(ClientId client, Id id, const Reject& reject, Time now) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  Endpoint& e = *endpoint;
  const bool datagrams = e.state == State::kSidrReceived;
  if (!datagrams && e.state != State::kReqReceived && e.state != State::kRepReceived && e.state != State::kRepSent) {
    return EINVAL;
  }
  if (!fits(reject.data, datagrams ? kSidrRepData : kRejData, false)) return EINVAL;
  mark_taken(e);
  if (datagrams) {
    send(e, make_sidr_refusal(e.remote_id, e.service, reject.sidr_status, reject.data), e.transaction);
    enter(e, State::kSidrReplied, now);
  } else {
    send(e, make_rej(e.id, e.remote_id, rejected_message(e.state), reject), e.transaction);
    enter(e, State::kTimeWait, now);
  }
  return 0;
}

int ConnectionManager::establish(ClientId client, Id id, Time now) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  if (endpoint->state == State::kEstablished) return EISCONN;
  if (endpoint->state != State::kRepSent) return EINVAL;
  enter(*endpoint, State::kEstablished, now);
  tell(*endpoint, EventKind::kEstablished);
  return 0;
}

int ConnectionManager::disconnect(ClientId client, Id id, const PrivateData& data, Time now) {
  const auto [endpoint, error] = owned(client, id);
  if (endpoint == nullptr) return error;
  const bool asked = endpoint->state == State::kDreqReceived;
  if (!fits(data, asked ? kDrepData : kDreqData, false)) return EINVAL;
  if (endpoint->state == State::kEstablished) {
    send_dreq(*endpoint, data, now);
  } else if (asked) {
    send(*endpoint, make_drep(endpoint->id, endpoint->remote_id, data), endpoint->dreq_transaction);
    enter(*endpoint, State::kTimeWait, now);
  }
  return 0;
}

int ConnectionManager::destroy(ClientId client, Id id, Time now) {
  if (!disown(client, id)) return ENOENT;
  end(id, now);
  end_some(now);
  return 0;
}

int ConnectionManager::adopt(ClientId client, const Adopt& adopt) {
  const Path& path = adopt.qp.path;
  if (adopt.id == kNoId || adopt.remote_id == kNoId || adopt.transport == Transport::kUd) return EINVAL;
  if (!can_be_reached(path.remote)) return EINVAL;
  if (table_.find(adopt.id) != nullptr || listeners_.find(adopt.id) != nullptr) return EEXIST;
  const Account account = output_.account_of(client);
  if (!room_for(client, account)) return ENFILE;
  Endpoint& endpoint = open(client, account, adopt.id);
  endpoint.remote_id = adopt.remote_id;
  endpoint.transport = adopt.transport;
  endpoint.service = adopt.service;
  endpoint.local_qpn = adopt.local_qpn;
  endpoint.peer = path.remote;
  endpoint.qp = adopt.qp;
  endpoint.patience = requester_patience(path.ack_timeout);
  endpoint.max_retries = kMaxRetries;
  enter(endpoint, State::kEstablished, {});
  return 0;
}

uint64_t ConnectionManager::end_client(ClientId client, Time now) {
  auto ids = clients_.extract(client);
  if (ids.empty()) return 0;
  leaving_.push_back(std::move(ids.mapped()));
  const uint64_t leaving = ended_ + leaving_.size();
  end_some(now);
  return leaving;
}

void ConnectionManager::end_some(Time now) {
  for (; !leaving_.empty() && to_end_ > 0; --to_end_) {
    std::set<Id>& ids = leaving_.front();  // stays where it is: end() only adds others
    const Id id = *ids.begin();
    ids.erase(ids.begin());
    end(id, now);
    if (!ids.empty()) continue;
    leaving_.pop_front();
    ++ended_;
  }
}

void ConnectionManager::end(Id id, Time now) {
  if (const Listener* const listener = listeners_.find(id); listener != nullptr) return end_listener(*listener, now);
  Endpoint& endpoint = *table_.find(id);
  change(endpoint, [](Endpoint& e) {
    e.abandoned = true;
    e.taken = true;
  });
  say_farewell(endpoint, now);
}

// Those of its requests that the application does not know of go with it, those that it does are on their own.
void ConnectionManager::end_listener(const Listener& listener, Time now) {
  if (listener.listen.service_mask == UINT64_MAX) waiting_.ended(listener.listen.service, now);
  const ClientId client = listener.client;
  std::set<Id> orphans;
  for (const Id id : listener.untaken) {
    table_.find(id)->listener = kNoId;
    if (disown(client, id)) orphans.insert(id);  // else its turn comes anyway
  }
  for (const auto& [number, id] : listener.half_open) table_.find(id)->listener = kNoId;
  ids_.remove(listener.user);
  listeners_.remove(listener.id);
  if (!orphans.empty()) leaving_.push_back(std::move(orphans));
}

void ConnectionManager::say_farewell(Endpoint& endpoint, Time now) {
  Endpoint& e = endpoint;
  switch (info_of(e.state).farewell) {
    case Farewell::kNone:
      break;
    case Farewell::kForget:
      return forget(e);
    case Farewell::kRejTimeout:
      send(e, make_timeout_rej(e), e.transaction);
      return enter(e, State::kTimeWait, now);
    case Farewell::kRejConsumer:
      send(e, make_rej(e.id, e.remote_id, rejected_message(e.state), {}), e.transaction);
      return enter(e, State::kTimeWait, now);
    case Farewell::kDreq:
      send_dreq(e, {}, now);
      break;
    case Farewell::kDrep:
      send(e, make_drep(e.id, e.remote_id, {}), e.dreq_transaction);
      return enter(e, State::kTimeWait, now);
    case Farewell::kSidrReject:
      send(e, make_sidr_refusal(e.remote_id, e.service, wire::SidrStatus::kReject, {}), e.transaction);
      return enter(e, State::kSidrReplied, now);
  }
  // It has been said once, if not more.
  if (abandoned_ > limits_.abandoned && e.state == State::kDreqSent) enter(e, State::kTimeWait, now);
}

// --- time ------------------------------------------------------------------------------------------------------------

void ConnectionManager::on_timer(Time now) {
  to_end_ = limits_.ended_in_a_turn;
  end_some(now);
  for (uint32_t i = 0; i < limits_.expired_in_a_turn; ++i) {
    Endpoint* const endpoint = table_.expired(now);
    if (endpoint == nullptr) break;
    expire(*endpoint, now);
  }
  if (waiting_.deadline() > now) return;
  const auto listens = [this](const WaitingRequests::Service& service) { return listeners_.has(service.id); };
  for (const Datagram& request : waiting_.take(listens, now)) dispatch(request, now, true);
}

void ConnectionManager::expire(Endpoint& endpoint, Time now) {
  if (!info_of(endpoint.state).awaits_answer) return end_memory(endpoint, now);
  if (endpoint.retries == 0) return give_up(endpoint, now);
  --endpoint.retries;
  if (may_repeat(endpoint, now)) {
    counters_.add(Counter::kRetransmissions);
    endpoint.sent_at = now;
    send_again(endpoint);
  }
  table_.schedule(endpoint, now + endpoint.wait);
}

// A REP goes to who has sent the REQ, or to somebody in whose name it was sent.
bool ConnectionManager::may_repeat(Endpoint& endpoint, Time now) {
  if (endpoint.state != State::kRepSent) return true;
  if (now - endpoint.sent_at < endpoint.wait) return false;  // repeat_reply()
  if (proven_.has(endpoint.peer)) return true;
  if (endpoint.repeats == 0) return false;
  --endpoint.repeats;
  return true;
}

// Nothing has come for the last message, however often it was sent.
void ConnectionManager::give_up(Endpoint& endpoint, Time now) {
  Endpoint& e = endpoint;
  counters_.add(Counter::kTimeouts);
  switch (e.state) {
    case State::kDreqSent:
      tell(e, EventKind::kDisconnected, -ETIMEDOUT);
      return enter(e, State::kTimeWait, now);
    case State::kSidrSent:
      tell(e, EventKind::kUnreachable, -ETIMEDOUT);
      return enter(e, State::kSpent, now);
    default:
      send(e, make_timeout_rej(e), e.transaction);
      tell(e, EventKind::kUnreachable, -ETIMEDOUT);
      return enter(e, State::kTimeWait, now);
  }
}

void ConnectionManager::end_memory(Endpoint& endpoint, Time now) {
  if (endpoint.disconnected) tell(endpoint, EventKind::kTimewaitExit);
  enter(endpoint, State::kSpent, now);
}

// --- states ----------------------------------------------------------------------------------------------------------

void ConnectionManager::count(const Endpoint& endpoint, bool counts) {
  const StateInfo& state = info_of(endpoint.state);
  const auto among = [&](std::map<uint64_t, Id>& half_open) {
    if (!counts) half_open.erase(endpoint.number);
    if (counts && state.half_open) half_open.emplace(endpoint.number, endpoint.id);
  };
  among(half_open_);
  if (endpoint.abandoned && state.awaits_answer) counts ? ++abandoned_ : --abandoned_;
  Listener* const listener = endpoint.listener == kNoId ? nullptr : listeners_.find(endpoint.listener);
  if (listener == nullptr) return;
  among(listener->half_open);
  if (!counts) listener->untaken.erase(endpoint.id);
  if (counts && !endpoint.taken) listener->untaken.insert(endpoint.id);
}

void ConnectionManager::mark_taken(Endpoint& endpoint) {
  change(endpoint, [](Endpoint& e) { e.taken = true; });
}

void ConnectionManager::enter(Endpoint& endpoint, State state, Time now) {
  const bool had_peer = info_of(endpoint.state).has_peer, has_peer = info_of(state).has_peer;
  table_.schedule(endpoint, kNever);
  change(endpoint, [state](Endpoint& e) { e.state = state; });
  if (has_peer && !had_peer) table_.take_peer(endpoint);
  if (had_peer && !has_peer) table_.leave_peer(endpoint);
  if (state == State::kEstablished) counters_.add(Counter::kEstablished);
  if (state == State::kSpent && endpoint.abandoned) return forget(endpoint);
  if (!info_of(state).ended) return;
  const Duration memory = state == State::kTimeWait ? timewait(endpoint.qp.path.ack_timeout) : kSidrMemory;
  table_.schedule(endpoint, now + memory);
  if (table_.ended() > limits_.ended) {
    counters_.add(Counter::kEvicted);
    end_memory(*table_.next_ended(), now);
  }
}

void ConnectionManager::forget(Endpoint& endpoint) {
  count(endpoint, false);
  ids_.remove(endpoint.user);
  table_.remove(endpoint);
}

// --- sending ---------------------------------------------------------------------------------------------------------

void ConnectionManager::post(const Path& path, const wire::IpAddress& to, const wire::Mad& mad) {
  output_.send({.netdev = path.netdev,
                .ca_guid = path.ca_guid,
                .source = path.local,
                .destination = to,
                .flow_label = path.flow_label,
                .traffic_class = path.traffic_class,
                .hop_limit = path.hop_limit,
                .mad = mad});
}

void ConnectionManager::send(Endpoint& endpoint, const wire::CmMessage& message, wire::TransactionId transaction,
                             uint32_t modifier) {
  endpoint.last = wire::emit_cm({.transaction = transaction, .modifier = modifier, .message = message});
  endpoint.last_kind = wire::attribute_of(message);
  send_again(endpoint);
}

void ConnectionManager::send_again(const Endpoint& endpoint) {
  post(endpoint.qp.path, endpoint.peer, endpoint.last);
}

void ConnectionManager::await(Endpoint& endpoint, Time now) {
  const bool proven = endpoint.state != State::kRepSent || proven_.has(endpoint.peer);
  endpoint.wait = proven ? endpoint.patience : std::max(endpoint.patience, kLeastApart);
  endpoint.sent_at = now;
  endpoint.repeats = limits_.repeats_unproven;
  endpoint.retries = endpoint.max_retries;
  endpoint.mras = endpoint.max_retries;
  table_.schedule(endpoint, now + endpoint.wait);
}

void ConnectionManager::send_dreq(Endpoint& endpoint, const PrivateData& data, Time now) {
  send(endpoint, make_dreq(endpoint, data), fresh_transaction());
  enter(endpoint, State::kDreqSent, now);
  await(endpoint, now);
}

// --- events ----------------------------------------------------------------------------------------------------------

Event ConnectionManager::event_of(const Endpoint& endpoint, EventKind kind, int32_t status) {
  return {.kind = kind,
          .client = endpoint.client,
          .id = endpoint.id,
          .remote_id = endpoint.remote_id,
          .status = status,
          .transport = endpoint.transport,
          .qp = endpoint.qp};
}

void ConnectionManager::tell(Endpoint& endpoint, const Event& event) {
  if (event.kind == EventKind::kDisconnected) endpoint.disconnected = true;
  if (has(endpoint.client, endpoint.id)) output_.on_event(event);
}

void ConnectionManager::tell(Endpoint& endpoint, EventKind kind, int32_t status, const PrivateData& data) {
  Event event = event_of(endpoint, kind, status);
  event.data = data;
  tell(endpoint, event);
}

// --- ids -------------------------------------------------------------------------------------------------------------

bool ConnectionManager::room_for(ClientId client, const Account& account) const {
  const auto ids = clients_.find(client);
  return ids_.has_room(account) && (ids == clients_.end() || ids->second.size() < limits_.ids_of_client);
}

bool ConnectionManager::has(ClientId client, Id id) const {
  const auto ids = clients_.find(client);
  return ids != clients_.end() && ids->second.contains(id);
}

Id ConnectionManager::fresh_id() {
  uint32_t id = random_();
  while (id == 0 || table_.find(Id{id}) != nullptr || listeners_.find(Id{id}) != nullptr) ++id;
  return Id{id};
}

wire::TransactionId ConnectionManager::fresh_transaction() {
  const uint64_t high = random_();
  return wire::TransactionId{high << 32 | random_()};
}

Endpoint& ConnectionManager::open(ClientId client, const Account& account, Id id) {
  clients_[client].insert(id);
  ids_.add(account.user);
  Endpoint& endpoint = table_.add(id, client);
  endpoint.user = account.user;
  endpoint.number = ++last_number_;
  return endpoint;
}

// False: it has no such id.
bool ConnectionManager::disown(ClientId client, Id id) {
  const auto ids = clients_.find(client);
  if (ids == clients_.end() || ids->second.erase(id) == 0) return false;
  if (ids->second.empty()) clients_.erase(ids);
  return true;
}

ConnectionManager::Owned ConnectionManager::owned(ClientId client, Id id) {
  if (!has(client, id)) return {nullptr, ENOENT};
  return {table_.find(id), EINVAL};
}

// --- for who looks on ------------------------------------------------------------------------------------------------

const QpAttributes* ConnectionManager::attributes(ClientId client, Id id) {
  const Endpoint* const endpoint = owned(client, id).endpoint;
  return endpoint == nullptr ? nullptr : &endpoint->qp;
}

void ConnectionManager::list(const std::function<void(const Listing&)>& visit) const {
  list(0, [&visit](const Listing& listing) {
    visit(listing);
    return true;
  });
}

// Listeners first. A place is the id that was taken last, and which of both it is.
uint64_t ConnectionManager::list(uint64_t place, const std::function<bool(const Listing&)>& visit) const {
  constexpr uint64_t kEndpoints = uint64_t{1} << 32;
  const auto take = [&](const Listing& listing, uint64_t kind) {
    if (!visit(listing)) return false;
    place = kind | static_cast<uint32_t>(listing.id);
    return true;
  };
  const auto take_listener = [&](const Listener& listener) {
    return take({.id = listener.id,
                 .client = listener.client,
                 .user = listener.user,
                 .abandoned = !has(listener.client, listener.id),
                 .state = "LISTEN",
                 .transport = listener.listen.datagrams ? Transport::kUd : Transport::kRc,
                 .service = listener.listen.service,
                 .local = listener.listen.address},
                0);
  };
  const auto take_endpoint = [&](const Endpoint& endpoint) {
    return take({.id = endpoint.id,
                 .client = endpoint.client,
                 .user = endpoint.user,
                 .abandoned = !has(endpoint.client, endpoint.id),
                 .state = info_of(endpoint.state).name,
                 .transport = endpoint.transport,
                 .service = endpoint.service,
                 .local = endpoint.qp.path.local,
                 .remote = endpoint.qp.path.remote,
                 .local_qpn = endpoint.local_qpn,
                 .remote_qpn = endpoint.qp.dest_qpn,
                 .remote_id = endpoint.remote_id},
                kEndpoints);
  };
  if (place < kEndpoints) {
    if (!listeners_.for_each_after(static_cast<Id>(place), take_listener)) return place;
    place = kEndpoints;
  }
  return table_.for_each_after(static_cast<Id>(place), take_endpoint) ? 0 : place;
}

}  // namespace uroce::cm

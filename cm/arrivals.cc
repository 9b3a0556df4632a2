// SPDX-License-Identifier: BSD-2-Clause
// The part of ConnectionManager that is about what arrives: whom it is for, and what it does (connection_states.h).
#include <algorithm>

#include "cm/connection_manager.h"
#include "cm/messages.h"
#include "cm/timing.h"
#include "wire/bytes.h"

namespace uroce::cm {
namespace {

bool can_answer(const Datagram& datagram) {
  return datagram.source_qpn == wire::kGsiQpn && !datagram.source.is_unspecified() && !datagram.source.is_multicast() &&
         !datagram.destination.is_multicast();
}

// The message whose answer an MRA puts off.
wire::CmAnswered awaited(State state) {
  return state == State::kReqSent || state == State::kReqReceived ? wire::CmAnswered::kReq : wire::CmAnswered::kRep;
}

// Behind the CMA header, if there is one.
template <size_t size>
PrivateData data_behind(const std::optional<wire::CmaHeader>& names, const std::array<uint8_t, size>& data) {
  return PrivateData(std::span<const uint8_t>(data).subspan(names ? wire::CmaHeader::kSize : 0));
}

}  // namespace

void ConnectionManager::on_datagram(const Datagram& datagram, Time now) {
  dispatch(datagram, now, false);
}

void ConnectionManager::dispatch(const Datagram& datagram, Time now, bool has_waited) {
  wire::CmMad mad;
  if (wire::parse_cm(datagram.mad, mad) != wire::CmParseError::kNone) return counters_.add(Counter::kDropMalformed);
  if (!can_answer(datagram)) return counters_.add(Counter::kDropSource);
  const In in{datagram, mad.transaction, mad.modifier, now, has_waited};
  std::visit([&](const auto& message) { on(message, in); }, mad.message);
}

Endpoint* ConnectionManager::match(Id ours, Id theirs, const Datagram& datagram) {
  Endpoint* const endpoint = table_.find(ours);
  const auto none = [&](Counter counter) {
    counters_.add(counter);
    return nullptr;
  };
  if (endpoint == nullptr) return none(Counter::kDropUnknownId);
  if (endpoint->peer != datagram.source || endpoint->qp.path.local != datagram.destination) {
    return none(Counter::kDropWrongPeer);
  }
  const bool first_answer = endpoint->state == State::kReqSent;  // tells the other side's id
  if (!first_answer && endpoint->remote_id != theirs) return none(Counter::kDropUnknownId);
  proven_.add(datagram.source);  // it knows the id, which is random
  return endpoint;
}

// --- requests --------------------------------------------------------------------------------------------------------

void ConnectionManager::on(const wire::Req& req, const In& in) {
  if (req.local_id == kNoId) return counters_.add(Counter::kDropMalformed);
  if (answer_known(req, in)) return;
  const auto refuse_with = [&](wire::RejReason reason) {
    answer(in, make_rej(kNoId, req.local_id, wire::CmAnswered::kReq, {.reason = reason}));
  };
  const std::optional<Transport> transport = transport_of(req);
  if (!transport) return refuse_with(wire::RejReason::kTransport);
  if (req.path_mtu < kSmallestMtu || req.path_mtu > kLargestMtu) return refuse_with(wire::RejReason::kMtu);
  if (req.primary.local_gid.is_unspecified() || req.primary.local_gid.is_multicast()) {
    return refuse_with(wire::RejReason::kGid);
  }
  const auto found = find_listener(req.service_id, false, req.private_data, in.datagram);
  if (found.listener == nullptr) {
    if (!found.bad_names && waits({req.service_id, false}, in)) return;
    return refuse_with(found.bad_names ? wire::RejReason::kConsumer : wire::RejReason::kServiceId);
  }
  if (!is_reached(in.datagram.source, in)) return refuse_with(wire::RejReason::kConsumer);
  const bool is_own_gid = req.primary.local_gid == in.datagram.source;
  if (!is_own_gid && !(limits_.takes_other_gids && is_reached(req.primary.local_gid, in))) {
    return refuse_with(wire::RejReason::kGid);
  }
  Endpoint* const opened = open_request(*found.listener, req.local_id, in);
  if (opened == nullptr) return;
  Endpoint& e = *opened;
  e.transport = *transport;
  e.service = req.service_id;
  e.qp = {.path = path_of(req, in.datagram),
          .remote_guid = req.ca_guid,
          .dest_qpn = req.qpn,
          .rq_psn = wire::Psn(random_()),
          .sq_psn = req.starting_psn,
          .max_rd_atomic = req.responder_resources,
          .max_dest_rd_atomic = req.initiator_depth,
          .retry_count = req.retry_count,
          .rnr_retry = req.rnr_retry};
  e.patience = responder_patience(req.local_response_timeout);
  e.max_retries = req.max_cm_retries;
  table_.name_request(EndpointTable::Request::kReq, e);
  enter(e, State::kReqReceived, in.now);
  Event event = request_event(e, found.names);
  event.parameters = parameters_of(req);
  event.ece = {.vendor_id = req.vendor_id, .options = in.modifier};
  event.data = data_behind(found.names, req.private_data);
  tell(e, event);
}

// What has come before, or comes from a QP that has a connection here (cm.md "States"). The transaction tells a
// duplicate from what a host sends that has crashed and begins again with the ids that it had.
bool ConnectionManager::answer_known(const wire::Req& req, const In& in) {
  Endpoint* const known = table_.find_request(EndpointTable::Request::kReq, in.datagram.source, req.local_id);
  if (known != nullptr && known->transaction == in.transaction) {
    react(*known, reaction_to(known->state, Arrival::kReqAgain), {}, in);
    return true;
  }
  Endpoint* const stale = known != nullptr && info_of(known->state).has_peer ? known : find_stale(req, in.datagram);
  if (stale == nullptr) return false;
  answer(in, make_rej(kNoId, req.local_id, wire::CmAnswered::kReq, {.reason = wire::RejReason::kStale}));
  end_stale(*stale, in.now);
  return true;
}

// One of the user who listens: what another one says of his connections keeps nobody from making one.
Endpoint* ConnectionManager::find_stale(const wire::Req& req, const Datagram& datagram) {
  const Listener* const listener =
      listeners_.match(req.service_id, false, wire::CmaHeader::parse(req.private_data), datagram);
  if (listener == nullptr) return nullptr;
  return table_.find_peer(listener->user, datagram.source, req.ca_guid, req.qpn);
}

void ConnectionManager::end_stale(Endpoint& endpoint, Time now) {
  counters_.add(Counter::kStale);
  if (endpoint.state == State::kEstablished) send_dreq(endpoint, {}, now);
}

void ConnectionManager::on(const wire::SidrReq& req, const In& in) {
  if (req.request_id == kNoId) return counters_.add(Counter::kDropMalformed);
  Endpoint* const known = table_.find_request(EndpointTable::Request::kSidrReq, in.datagram.source, req.request_id);
  if (known != nullptr && known->transaction == in.transaction) {
    return react(*known, reaction_to(known->state, Arrival::kSidrReqAgain), {}, in);
  }
  const auto refuse_with = [&](wire::SidrStatus status) {
    answer(in, make_sidr_refusal(req.request_id, req.service_id, status, {}));
  };
  const auto found = find_listener(req.service_id, true, req.private_data, in.datagram);
  if (found.listener == nullptr) {
    if (!found.bad_names && waits({req.service_id, true}, in)) return;
    return refuse_with(found.bad_names ? wire::SidrStatus::kReject : wire::SidrStatus::kUnsupported);
  }
  if (!is_reached(in.datagram.source, in)) return refuse_with(wire::SidrStatus::kReject);
  Endpoint* const opened = open_request(*found.listener, req.request_id, in);
  if (opened == nullptr) return;
  Endpoint& e = *opened;
  e.transport = Transport::kUd;
  e.service = req.service_id;
  e.qp.path = path_of(in.datagram);
  table_.name_request(EndpointTable::Request::kSidrReq, e);
  enter(e, State::kSidrReceived, in.now);
  Event event = request_event(e, found.names);
  event.ece.options = in.modifier;
  event.data = data_behind(found.names, req.private_data);
  tell(e, event);
}

// For a listener that may be about to come.
bool ConnectionManager::waits(const WaitingRequests::Service& service, const In& in) {
  return !in.has_waited && waiting_.keep(service, in.datagram, output_.is_bound(service.id), in.now);
}

ConnectionManager::Found ConnectionManager::find_listener(wire::ServiceId service, bool datagrams,
                                                          std::span<const uint8_t> data, const Datagram& datagram) {
  const std::optional<wire::CmaHeader> names = wire::CmaHeader::parse(data);
  Listener* const listener = listeners_.match(service, datagrams, names, datagram);
  if (listener == nullptr) {
    counters_.add(Counter::kNoListener);
    return {.bad_names = !names && listeners_.has(service)};
  }
  return {.listener = listener, .names = listener->listen.ip ? names : std::nullopt};
}

bool ConnectionManager::is_reached(const wire::IpAddress& address, const In& in) {
  if (output_.reaches(in.datagram.netdev, in.datagram.destination, address)) return true;
  counters_.add(Counter::kNotReached);
  return false;
}

// A new id of the listener's client. Null, and counted: there are too many, or the client has ended; nobody answers,
// and the other side tries again.
Endpoint* ConnectionManager::open_request(Listener& listener, Id remote_id, const In& in) {
  const uint32_t most_untaken = std::min(listener.listen.backlog, limits_.half_open_of_listener);
  if (listener.untaken.size() >= most_untaken) return counters_.add(Counter::kDropBacklog), nullptr;
  const bool is_somebodys = has(listener.client, listener.id);
  const Account account = is_somebodys ? output_.account_of(listener.client) : Account{};
  if (!is_somebodys || !room_for(listener.client, account)) return counters_.add(Counter::kDropLimit), nullptr;
  make_room(listener, in.now);
  counters_.add(Counter::kRequests);
  Endpoint& endpoint = open(listener.client, account, fresh_id());
  endpoint.peer = in.datagram.source;
  endpoint.remote_id = remote_id;
  endpoint.transaction = in.transaction;
  change(endpoint, [&](Endpoint& e) {
    e.listener = listener.id;
    e.taken = false;
  });
  return &endpoint;
}

// Whoever sends requests in others' names cannot keep those away who answer: theirs do not stay half open for long, and
// the oldest one goes. It goes as if the other side had given it up, of which it is not told: it may ask again.
void ConnectionManager::make_room(const Listener& listener, Time now) {
  const bool is_full = listener.half_open.size() >= limits_.half_open_of_listener;
  if (!is_full && half_open_.size() < limits_.half_open) return;
  const auto& oldest = listener.half_open.empty() ? half_open_ : listener.half_open;
  if (oldest.empty()) return;
  Endpoint& e = *table_.find(oldest.begin()->second);
  counters_.add(Counter::kGaveWay);
  const bool known_to_both = e.state == State::kRepSent;
  tell(e, EventKind::kRejected, static_cast<int32_t>(wire::RejReason::kTimeout));
  enter(e, known_to_both ? State::kTimeWait : State::kSpent, now);
}

Event ConnectionManager::request_event(const Endpoint& endpoint, const std::optional<wire::CmaHeader>& names) {
  Event event = event_of(endpoint, EventKind::kConnectRequest);
  event.listener = endpoint.listener;
  event.service = endpoint.service;
  event.names = names;
  return event;
}

// --- answers ---------------------------------------------------------------------------------------------------------

void ConnectionManager::on(const wire::Mra& mra, const In& in) {
  Endpoint* const endpoint = match(mra.remote_id, mra.local_id, in.datagram);
  if (endpoint == nullptr) return;
  if (reaction_to(endpoint->state, Arrival::kMra) != Reaction::kGrantTime || mra.message != awaited(endpoint->state) ||
      endpoint->mras == 0) {
    return counters_.add(Counter::kDropState);
  }
  --endpoint->mras;
  endpoint->wait = mra_patience(mra.service_timeout, endpoint->qp.path.ack_timeout);
  table_.schedule(*endpoint, in.now + endpoint->wait);
}

void ConnectionManager::on(const wire::Rej& rej, const In& in) {
  Endpoint* const endpoint =
      rej.remote_id == kNoId ? match_timeout(rej, in.datagram) : match(rej.remote_id, rej.local_id, in.datagram);
  if (endpoint == nullptr) return;
  Endpoint& e = *endpoint;
  const Reaction what = reaction_to(e.state, Arrival::kRej);
  if (what != Reaction::kReject) return react(e, what, {}, in);
  counters_.add(Counter::kRejected);
  const bool known_to_both = e.state != State::kReqSent && e.state != State::kReqReceived;
  tell(e, EventKind::kRejected, static_cast<int32_t>(rej.reason), PrivateData(rej.private_data));
  enter(e, known_to_both ? State::kTimeWait : State::kSpent, in.now);
}

// The other side has given up a REQ of which it knows no answer. It says which host it is by its GUID.
Endpoint* ConnectionManager::match_timeout(const wire::Rej& rej, const Datagram& datagram) {
  Endpoint* const endpoint = table_.find_request(EndpointTable::Request::kReq, datagram.source, rej.local_id);
  const bool same_host = endpoint != nullptr && rej.reason == wire::RejReason::kTimeout && rej.info_length >= 8 &&
                         wire::Guid{wire::load_be64(rej.additional_info.data())} == endpoint->qp.remote_guid;
  if (same_host) return endpoint;
  counters_.add(Counter::kDropUnknownId);
  return nullptr;
}

void ConnectionManager::on(const wire::Rep& rep, const In& in) {
  if (rep.local_id == kNoId) return counters_.add(Counter::kDropMalformed);
  Endpoint* const endpoint = match(rep.remote_id, rep.local_id, in.datagram);
  if (endpoint == nullptr) return refuse(rep.remote_id, rep.local_id, wire::CmAnswered::kRep, in);
  const Reaction what = reaction_to(endpoint->state, Arrival::kRep);
  if (what == Reaction::kRespond) return respond(*endpoint, rep, in);
  react(*endpoint, what, {}, in);
}

void ConnectionManager::respond(Endpoint& e, const wire::Rep& rep, const In& in) {
  const Parameters told = parameters_of(rep, e.transport);
  if (Endpoint* const stale = table_.find_peer(e.user, e.peer, rep.ca_guid, told.qpn); stale != nullptr) {
    answer(in, make_rej(e.id, rep.local_id, wire::CmAnswered::kRep, {.reason = wire::RejReason::kStale}));
    return end_stale(*stale, in.now);
  }
  e.remote_id = rep.local_id;
  e.qp.remote_guid = rep.ca_guid;
  e.qp.dest_qpn = told.qpn;
  e.qp.sq_psn = rep.starting_psn;
  // The other side may grant less than was asked for, not more.
  e.qp.max_rd_atomic = std::min(e.qp.max_rd_atomic, rep.responder_resources);
  e.qp.max_dest_rd_atomic = std::min(e.qp.max_dest_rd_atomic, rep.initiator_depth);
  e.qp.rnr_retry = rep.rnr_retry;
  e.qp.path.ack_timeout = ack_timeout(rep.target_ack_delay, lifetime_of(e.qp.path.ack_timeout));
  enter(e, State::kRepReceived, in.now);
  Event event = event_of(e, EventKind::kConnectResponse);
  event.parameters = told;
  event.ece = ece_of(rep, in.modifier);
  event.data = PrivateData(rep.private_data);
  tell(e, event);
}

void ConnectionManager::on(const wire::Rtu& rtu, const In& in) {
  Endpoint* const endpoint = match(rtu.remote_id, rtu.local_id, in.datagram);
  if (endpoint == nullptr) return refuse(rtu.remote_id, rtu.local_id, wire::CmAnswered::kOther, in);
  react(*endpoint, reaction_to(endpoint->state, Arrival::kRtu), PrivateData(rtu.private_data), in);
}

void ConnectionManager::on(const wire::Dreq& dreq, const In& in) {
  Endpoint* const endpoint = match(dreq.remote_id, dreq.local_id, in.datagram);
  if (endpoint == nullptr) return answer(in, make_drep(dreq.remote_id, dreq.local_id, {}));
  if (dreq.remote_qpn != endpoint->local_qpn) return counters_.add(Counter::kDropWrongQpn);
  react(*endpoint, reaction_to(endpoint->state, Arrival::kDreq), PrivateData(dreq.private_data), in);
}

void ConnectionManager::on(const wire::Drep& drep, const In& in) {
  Endpoint* const endpoint = match(drep.remote_id, drep.local_id, in.datagram);
  if (endpoint == nullptr) return;
  react(*endpoint, reaction_to(endpoint->state, Arrival::kDrep), PrivateData(drep.private_data), in);
}

void ConnectionManager::on(const wire::SidrRep& rep, const In& in) {
  Endpoint* const endpoint = match(rep.request_id, kNoId, in.datagram);
  if (endpoint == nullptr) return;
  if (reaction_to(endpoint->state, Arrival::kSidrRep) != Reaction::kResolve) return counters_.add(Counter::kDropState);
  Endpoint& e = *endpoint;
  if (rep.status != wire::SidrStatus::kOk) {
    tell(e, EventKind::kUnreachable, static_cast<int32_t>(rep.status), PrivateData(rep.private_data));
    return enter(e, State::kSpent, in.now);
  }
  e.qp.dest_qpn = rep.qpn;
  e.qp.qkey = rep.qkey;
  enter(e, State::kResolved, in.now);
  Event event = event_of(e, EventKind::kEstablished);
  event.parameters.qpn = rep.qpn;
  event.parameters.qkey = rep.qkey;
  event.ece = ece_of(rep, in.modifier);
  event.data = PrivateData(rep.private_data);
  tell(e, event);
}

// Alternate paths are not for Ethernet.
void ConnectionManager::on(const wire::Lap& lap, const In& in) {
  wire::Apr apr;
  apr.local_id = lap.remote_id;
  apr.remote_id = lap.local_id;
  apr.status = match(lap.remote_id, lap.local_id, in.datagram) == nullptr ? wire::AprStatus::kCommId
                                                                          : wire::AprStatus::kUnsupported;
  answer(in, apr);
}

void ConnectionManager::on(const wire::Apr&, const In&) {
  counters_.add(Counter::kDropState);  // nobody here sends a LAP
}

// --- reactions -------------------------------------------------------------------------------------------------------

void ConnectionManager::react(Endpoint& e, Reaction reaction, const PrivateData& data, const In& in) {
  switch (reaction) {
    case Reaction::kEstablish:
      enter(e, State::kEstablished, in.now);
      return tell(e, EventKind::kEstablished, 0, data);
    case Reaction::kDisconnect:
      e.dreq_transaction = in.transaction;
      enter(e, State::kDreqReceived, in.now);
      return tell(e, EventKind::kDisconnected, 0, data);
    case Reaction::kDisconnectNow:
      send(e, make_drep(e.id, e.remote_id, {}), in.transaction);
      [[fallthrough]];
    case Reaction::kFinish:
      tell(e, EventKind::kDisconnected, 0, data);
      return enter(e, State::kTimeWait, in.now);
    case Reaction::kAskForTime:
      counters_.add(Counter::kAnsweredAgain);
      return answer(in, make_mra(e, awaited(e.state)));
    case Reaction::kAnswerDreq:
      if (e.last_kind == wire::CmAttribute::kDrep) return repeat(e, wire::CmAttribute::kDrep);
      counters_.add(Counter::kAnsweredAgain);
      return answer(in, make_drep(e.id, e.remote_id, {}));
    case Reaction::kRepeat:
      return repeat(e, e.transport == Transport::kUd ? wire::CmAttribute::kSidrRep : wire::CmAttribute::kRtu);
    case Reaction::kRepeatReply:
      return repeat_reply(e, in.now);
    case Reaction::kRepeatRefusal:
      return repeat(e, wire::CmAttribute::kRej);
    case Reaction::kRefuse:
      if (e.last_kind == wire::CmAttribute::kRej) return repeat(e, wire::CmAttribute::kRej);
      return refuse(e.id, e.remote_id, wire::CmAnswered::kOther, in);
    case Reaction::kIgnore:
      return counters_.add(Counter::kDropDuplicate);
    case Reaction::kDrop:
    case Reaction::kGrantTime:
    case Reaction::kRespond:
    case Reaction::kReject:
    case Reaction::kResolve:
      return counters_.add(Counter::kDropState);
  }
}

// If that is what was sent last: it was the answer to what has come again.
void ConnectionManager::repeat(const Endpoint& endpoint, wire::CmAttribute kind) {
  if (endpoint.last_kind != kind) return counters_.add(Counter::kDropDuplicate);
  counters_.add(Counter::kAnsweredAgain);
  send_again(endpoint);
}

// To an address that is not proven the timer sends little (may_repeat()): who asks again is answered again. Not a copy
// of the REQ, which comes at once.
void ConnectionManager::repeat_reply(Endpoint& endpoint, Time now) {
  if (proven_.has(endpoint.peer) || now - endpoint.sent_at < kLeastApart) {
    return counters_.add(Counter::kDropDuplicate);
  }
  counters_.add(Counter::kAnsweredAgain);
  endpoint.sent_at = now;
  send_again(endpoint);
}

// The other side believes in a connection that is none: it learns so now and not by its timers, or never.
void ConnectionManager::refuse(Id ours, Id theirs, wire::CmAnswered message, const In& in) {
  answer(in, make_rej(ours, theirs, message, {.reason = wire::RejReason::kCommId}));
}

void ConnectionManager::answer(const In& in, const wire::CmMessage& message) {
  post(path_of(in.datagram), in.datagram.source, wire::emit_cm({.transaction = in.transaction, .message = message}));
}

}  // namespace uroce::cm

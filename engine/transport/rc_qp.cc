#include "engine/transport/rc_qp.h"

#include <algorithm>
#include <cerrno>

#include "wire/bth.h"

namespace uroce::transport {

using wire::Packet;
using wire::TxPacket;

RcQp::RcQp(const RcQpConfig& config)
    : qp_{config.qpn, config.pd,      config.signal_all, config.rq_shared, config.mrs,     config.sq,
          config.rq,  config.send_cq, config.recv_cq,    config.events,    config.counters},
      window_(qp_.sq),
      requester_(qp_, window_),
      completer_(qp_, window_, requester_),
      responder_(qp_) {}

int RcQp::check_values(const QpAttributes& a, uint32_t mask) const {
  if ((mask & kQpPathMtu) && a.path_mtu != 256 && a.path_mtu != 512 && a.path_mtu != 1024 && a.path_mtu != 2048 &&
      a.path_mtu != 4096) {
    return EINVAL;
  }
  if ((mask & kQpTimeout) && a.timeout > 31) return EINVAL;
  if ((mask & kQpMinRnrTimer) && a.min_rnr_timer > 31) return EINVAL;
  if ((mask & kQpRetryCount) && a.retry_count > 7) return EINVAL;
  if ((mask & kQpRnrRetry) && a.rnr_retry > 7) return EINVAL;
  if ((mask & kQpMaxDestRdAtomic) && a.max_dest_rd_atomic > ReplayCache::kSize) return EINVAL;
  if ((mask & kQpMaxRdAtomic) && a.max_rd_atomic > ReplayCache::kSize) return EINVAL;
  return 0;
}

int RcQp::modify(const QpAttributes& attributes, uint32_t mask, Time now) {
  qp_.now = now;
  const QpState from = state();
  const QpState to = (mask & kQpState) ? attributes.state : from;
  if ((mask & kQpCurrentState) && attributes.current_state != from) return EINVAL;
  if (const int error = check_transition(QpType::kRc, from, to, mask); error != 0) return error;
  if (const int error = check_values(attributes, mask); error != 0) return error;
  apply_attributes(qp_.attr, attributes, mask);
  if (mask & kQpSqPsn) window_.reset(qp_.attr.sq_psn);
  if (to != from) enter(to);
  settle();
  return 0;
}

// The one place where the state changes.
void RcQp::enter(QpState to) {
  qp_.attr.state = to;
  switch (to) {
    case QpState::kReset:
      qp_.attr = QpAttributes{};
      qp_.sq.reset();
      if (!qp_.rq_shared) qp_.rq.reset();
      requester_.reset();
      completer_.reset();
      responder_.reset();
      window_.reset(wire::Psn{});
      congestion_ = congestion::CongestionControl();
      cnps_ = congestion::CnpGenerator();
      cnp_pending_ = communication_established_ = qp_.lost_completion = false;
      break;
    case QpState::kRtr:
      responder_.start(qp_.attr.rq_psn);
      break;
    case QpState::kRts:
      drain_reported_ = false;
      communication_established_ = true;  // the event is for packets that come before RTS
      break;
    case QpState::kErr:
      completer_.flush();
      responder_.flush();
      // IBTA 11.6.3.2: nothing of the shared queue is with this QP any more.
      if (qp_.rq_shared) qp_.events.on_event(AsyncEvent::kQpLastWqeReached);
      break;
    default:
      break;
  }
}

// After every call: what the parts reported becomes state.
void RcQp::settle() {
  if (!qp_.failed && requester_.local_error()) completer_.settle_local_error();
  if (qp_.failed) {
    qp_.failed = false;
    if (state() != QpState::kErr && state() != QpState::kReset) enter(QpState::kErr);
  }
  const bool begun = qp_.sq.fetched() != qp_.sq.tail() && qp_.sq.entry(qp_.sq.tail()).progress.started;
  if (state() == QpState::kSqd && !drain_reported_ && window_.idle() && !begun) {
    drain_reported_ = true;
    if (qp_.attr.en_sqd_async_notify) qp_.events.on_event(AsyncEvent::kSqDrained);
  }
}

void RcQp::on_packet(const Packet& packet, Time now) {
  qp_.now = now;
  const QpState s = state();
  if (packet.info->operation == wire::Operation::kCnp) {
    if (!responding()) return qp_.counters.add(Counter::kDropQpState);
    qp_.counters.add(Counter::kRxCnps);
    return congestion_.on_cnp(now);
  }
  if (packet.info->transport != wire::Transport::kRc) return qp_.counters.add(Counter::kDropWrongTransport);
  if (packet.info->request) {
    if (!responding()) return qp_.counters.add(Counter::kDropQpState);
    if (!communication_established_) {
      communication_established_ = true;
      qp_.events.on_event(AsyncEvent::kCommunicationEstablished);
    }
    responder_.on_request(packet);
  } else {
    if (s != QpState::kRts && s != QpState::kSqd) return qp_.counters.add(Counter::kDropQpState);
    completer_.on_response(packet);
  }
  settle();
}

bool RcQp::responding() const {
  const QpState s = state();
  return s == QpState::kRtr || s == QpState::kRts || s == QpState::kSqd;
}

void RcQp::on_congestion_mark(Time now) {
  qp_.counters.add(Counter::kRxCongestionMarks);
  if (responding() && cnps_.on_ce(now)) cnp_pending_ = true;
}

bool RcQp::wants_to_send(Time now) const {
  if (cnp_pending_) return true;
  const bool allowed = now >= congestion_.resume_at();
  if (responder_.nak_pending() && (allowed || !responder_.answering())) return true;
  if (!responding() || !allowed) return false;
  const bool requesting = state() != QpState::kRtr;
  return responder_.wants_to_send() || (requesting && now >= requester_.resume_at() && requester_.wants_to_send());
}

bool RcQp::pull(TxPacket& out, Time now) {
  qp_.now = now;
  if (cnp_pending_) {
    pull_cnp(out);
    return true;
  }
  // Responses and requests share the rate that congestion leaves to this QP; a NAK that waits for nothing is free.
  const bool allowed = congestion_.may_send(now);
  if ((responding() || responder_.nak_pending()) && (allowed || !responder_.answering()) && responder_.pull(out)) {
    congestion_.on_sent(out.udp_length(), now);
    settle();
    return true;
  }
  if (!allowed || (state() != QpState::kRts && state() != QpState::kSqd)) return false;
  const bool was_idle = window_.idle();
  const bool again = window_.resending();
  const wire::Psn psn = window_.next();
  const bool sent = requester_.pull(out);
  if (sent) {
    congestion_.on_sent(out.udp_length(), now);
    completer_.on_sent(psn, was_idle, again);
  }
  settle();
  return sent;
}

// IBTA annex A17, wire.md "ConnectX and DCQCN": BECN, PSN 0, to the QP whose packets were marked.
void RcQp::pull_cnp(TxPacket& out) {
  cnp_pending_ = false;
  out.clear_payload();
  wire::Bth bth{};
  bth.opcode = wire::Opcode::kCnp;
  bth.becn = true;
  bth.pkey = 0xffff;
  bth.dest_qp = qp_.attr.dest_qpn;
  bth.emit(out.header.data());
  std::fill_n(out.header.begin() + wire::Bth::kSize, wire::kCnpReservedSize, uint8_t{0});
  out.header_size = wire::Bth::kSize + wire::kCnpReservedSize;
  qp_.counters.add(Counter::kTxCnps);
}

// Congestion control makes the QP wait with what it has to send.
bool RcQp::held_back() const {
  return congestion_.resume_at() > qp_.now && (responder_.wants_to_send() || has_requests());
}

// What is held back cannot be acknowledged, so the retry timers wait with it.
Time RcQp::deadline() const {
  return responding() && held_back() ? congestion_.resume_at() : completer_.deadline();
}

bool RcQp::pull_ack(TxPacket& out, Time now) {
  qp_.now = now;
  return responding() && responder_.pull_ack(out);
}

void RcQp::on_unreadable(const TxPacket& packet, Time now) {
  qp_.now = now;
  if (!responding()) return;
  const wire::Bth bth = wire::Bth::parse(wire::BthView::at(packet.header.data()));
  if (wire::opcode_info(bth.opcode).request) {
    requester_.on_unreadable(bth.psn);
  } else {
    responder_.on_unreadable(bth.psn);
  }
  settle();
}

void RcQp::on_posted(Time now) {
  qp_.now = now;
  if (state() != QpState::kErr) return;
  completer_.flush();
  responder_.flush();
}

void RcQp::on_timer(Time now) {
  qp_.now = now;
  if ((state() != QpState::kRts && state() != QpState::kSqd) || held_back()) return;
  completer_.on_timer();
  settle();
}

}  // namespace uroce::transport

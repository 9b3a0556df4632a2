// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/reliable/rc_qp.h"

#include <algorithm>

#include "wire/bth.h"

namespace uroce::transport {

using io::TxPacket;
using wire::Packet;

void RcQp::enter(QpState to) {
  switch (to) {
    case QpState::kReset:
      qp_.sq.reset();
      if (!qp_.rq_shared) qp_.receive.rq->reset();
      requester_.reset();
      responder_.reset();
      congestion_.reset();
      communication_established_ = qp_.lost_completion = false;
      break;
    case QpState::kRtr:
      responder_.start(qp_.attr.rq_psn);
      break;
    case QpState::kRts:
      drain_reported_ = false;
      communication_established_ = true;  // the event is for packets that come before RTS
      break;
    case QpState::kErr:
      requester_.flush();
      responder_.flush();
      report_last_wqe();
      break;
    default:
      break;
  }
}

void RcQp::settle(Outcome outcome) {
  if (outcome == Outcome::kGoesOn) outcome = requester_.settle_local_error();
  if (outcome == Outcome::kFailed) {
    if (state() != QpState::kErr && state() != QpState::kReset) {
      qp_.attr.state = QpState::kErr;
      enter(QpState::kErr);
    }
  }
  if (state() == QpState::kSqd && !drain_reported_ && requester_.drained()) {
    drain_reported_ = true;
    if (qp_.attr.en_sqd_async_notify) qp_.events.on_event(AsyncEvent::kSqDrained);
  }
}

void RcQp::on_packet(const Packet& packet, Time now) {
  qp_.now = now;
  if (!receiving()) return qp_.counters.add(Counter::kDropQpState);
  if (packet.info->operation == wire::Operation::kCnp) return congestion_.on_cnp();
  const bool xrc = qp_.type != QpType::kRc;
  if (packet.info->transport != (xrc ? wire::Transport::kXrc : wire::Transport::kRc) ||
      !(packet.info->request ? answers() : asks())) {
    return qp_.counters.add(Counter::kDropWrongTransport);
  }
  if (packet.info->request) {
    if (!communication_established_) {
      communication_established_ = true;
      qp_.events.on_event(AsyncEvent::kCommunicationEstablished);
    }
    settle(responder_.on_request(packet));
  } else {
    if (!sending()) return qp_.counters.add(Counter::kDropQpState);
    const wire::Psn unacknowledged = requester_.unacknowledged();
    const Outcome outcome = requester_.on_response(packet, now);
    congestion_.on_acknowledged(unacknowledged, requester_.unacknowledged());
    settle(outcome);
  }
}

bool RcQp::on_middle_packets(const Packet& previous, std::span<const uint8_t* const> payloads, Time now) {
  qp_.now = now;
  return take_middle_packets(previous, payloads, now) || TransportQp::on_middle_packets(previous, payloads, now);
}

// Middle packets: no message ends with them, so there is nothing to settle.
bool RcQp::take_middle_packets(const Packet& previous, std::span<const uint8_t* const> payloads, Time now) {
  const wire::OpcodeInfo& info = *previous.info;
  if (!info.is_middle() || info.transport != wire::Transport::kRc || qp_.type != QpType::kRc || previous.psns != 1) {
    return false;
  }
  if (info.request) return receiving() && responder_.take_middle_packets(previous, payloads);
  const wire::Psn unacknowledged = requester_.unacknowledged();
  if (!sending() || !requester_.take_middle_packets(previous, payloads, now)) return false;
  congestion_.on_acknowledged(unacknowledged, requester_.unacknowledged());
  return true;
}

void RcQp::on_congestion_mark(Time now) {
  qp_.now = now;
  qp_.counters.add(Counter::kRxCongestionMarks);
  if (receiving()) congestion_.on_mark();
}

// Responses and requests share the rate that congestion leaves to this QP. A NAK that waits for nothing is free.
bool RcQp::has_paced_packets(Time now) const {
  return ((receiving() || responder_.nak_pending()) && responder_.answering()) ||
         (sending() && requester_.wants_to_send(now));
}

// Congestion control makes the QP wait with all that it has. What a timer sends does not wait, or the retry budget
// would last longer than its timeout says; it is one packet now and then.
bool RcQp::held_back(Time now) const {
  return now < congestion_.resume_at() && has_paced_packets(now) && !(sending() && requester_.sends_for_timer());
}

// While nothing is in flight there is nothing to probe for, so probes wait with what is held back. The retransmission
// timer does not: what it is to repeat may have been sent before.
Time RcQp::next_timer(bool held) const {
  return held && requester_.in_flight() == 0 ? requester_.retransmission_timer() : requester_.next_timer();
}

Agenda RcQp::agenda(Time now) const {
  const bool held = held_back(now);
  const bool nak = responder_.nak_pending() && !responder_.answering();
  const Time timer = next_timer(held);
  return {.send = congestion_.cnp_pending() || nak || (has_paced_packets(now) && !held),
          .ack = responder_.ack_owed(),
          .ack_urgent = responder_.ack_urgent(),
          .ack_of_lone_write = responder_.ack_of_lone_write(),
          .deadline = held ? std::min(timer, congestion_.resume_at()) : timer};
}

bool RcQp::pull(TxPacket& out, Time now) {
  qp_.now = now;
  requester_.forget_repeatable();  // what comes now may be another packet, and what was may have changed
  responder_.forget_repeatable();
  if (congestion_.cnp_pending()) {
    congestion_.pull_cnp(out);
    return true;
  }
  const bool allowed = congestion_.may_send();
  if ((receiving() || responder_.nak_pending()) && (allowed || !responder_.answering())) {
    if (const Responder::Pulled pulled = responder_.pull(out); pulled != Responder::Pulled::kNothing) {
      congestion_.on_sent(out);
      settle(pulled == Responder::Pulled::kFinalNak ? Outcome::kFailed : Outcome::kGoesOn);
      return true;
    }
  }
  if (!sending() || !(allowed || requester_.sends_for_timer())) return false;
  if (const Outcome outcome = requester_.run_local_operations(); outcome == Outcome::kFailed) {
    settle(outcome);
    return false;
  }
  const uint32_t in_flight = requester_.in_flight();
  const bool sent = requester_.pull(out, now);
  if (sent) congestion_.on_sent(out, in_flight);
  settle(Outcome::kGoesOn);
  return sent;
}

size_t RcQp::pull_middle_packets(const TxPacket& previous, std::span<TxPacket> out, Time now) {
  qp_.now = now;
  if (out.empty() || congestion_.cnp_pending() || !congestion_.may_send()) return 0;
  if (congestion_.paced()) out = out.first(1);  // each of them is asked about
  const uint32_t in_flight = requester_.in_flight();
  size_t count = 0;
  if (responder_.answering()) {
    if (receiving() || responder_.nak_pending()) count = responder_.pull_middle_packets(previous, out);
  } else if (!responder_.nak_pending() && sending()) {
    count = requester_.pull_middle_packets(previous, out, now);
  }
  if (count > 0) congestion_.on_sent(out.front(), in_flight, static_cast<uint32_t>(count));
  return count;
}

bool RcQp::pull_ack(TxPacket& out, Time now) {
  qp_.now = now;
  return receiving() && responder_.pull_ack(out);
}

void RcQp::on_unreadable(const TxPacket& packet, Time now) {
  qp_.now = now;
  const wire::Bth bth = wire::Bth::parse(wire::BthView::at(packet.header.data()));
  const bool of_request = wire::opcode_info(bth.opcode).request;
  if (!receiving()) {
    if (!of_request) responder_.on_unreadable_before_nak(bth.psn);
    return;
  }
  if (of_request) {
    requester_.on_unreadable(bth.psn);
    settle(Outcome::kGoesOn);
  } else {
    settle(responder_.on_unreadable(bth.psn));
  }
}

void RcQp::on_posted(Time now) {
  qp_.now = now;
  if (state() != QpState::kErr) return;
  requester_.flush();
  responder_.flush();
}

void RcQp::on_timer(Time now) {
  qp_.now = now;
  if (!sending() || now < next_timer(held_back(now))) return;
  settle(requester_.on_timer(now));
}

void RcQp::on_pause(Duration late, Time now) {
  qp_.now = now;
  if (!sending()) return;
  qp_.counters.add(Counter::kOwnPauses);
  requester_.on_pause(late, now);
}

}  // namespace uroce::transport

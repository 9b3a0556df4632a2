// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/unreliable/uc_qp.h"

namespace uroce::transport {

using wire::Operation;
using wire::Packet;

void UcQp::enter(QpState to) {
  UnreliableQp::enter(to);
  if (to == QpState::kReset) {
    congestion_.reset();
    message_.abandon();
    communication_established_ = false;
  }
  if (to == QpState::kRtr) expected_ = qp_.attr.rq_psn;
  if (to == QpState::kRts) communication_established_ = true;  // the event is for packets that come before RTS
}

void UcQp::on_packet(const Packet& packet, Time now) {
  qp_.now = now;
  if (!receiving()) return qp_.counters.add(Counter::kDropQpState);
  if (packet.info->operation == Operation::kCnp) return congestion_.on_cnp();
  if (packet.info->transport != wire::Transport::kUc) return qp_.counters.add(Counter::kDropWrongTransport);
  qp_.counters.add(Counter::kRxRequests);
  if (!communication_established_) {
    communication_established_ = true;
    qp_.events.on_event(AsyncEvent::kCommunicationEstablished);
  }
  if (!in_sequence(packet)) return;
  settle(message_.length_valid(packet) ? on_message(packet) : drop_message(Counter::kDropMessage));
}

// IBTA 9.8.2.2: the next packet has the next PSN. After a gap, or a packet out of place, everything up to the beginning
// of a message is dropped, and the message that was under way with it.
bool UcQp::in_sequence(const Packet& packet) {
  const bool gap = packet.bth.psn != expected_;
  expected_ = packet.bth.psn + 1;
  if (gap) {
    qp_.counters.add(Counter::kRxOutOfSequence);
    if (message_.under_way()) static_cast<void>(drop_message(Counter::kDropMessage));
  }
  if (message_.in_sequence(packet)) return true;
  static_cast<void>(drop_message(Counter::kDropMessage));
  return packet.info->first;
}

Outcome UcQp::on_message(const Packet& packet) {
  switch (message_.take(packet)) {
    case Arrival::kTaken:
      return Outcome::kGoesOn;
    case Arrival::kCompletionLost:
      return Outcome::kFailed;
    case Arrival::kNoReceive:
      return drop_message(Counter::kDropNoReceive);
    case Arrival::kTooLong:
      message_.abandon();
      return drop_too_long();
    case Arrival::kReceiveMemory:  // the application's, and an error of this side
      message_.abandon();
      static_cast<void>(receive_.fail(queue::WcStatus::kLocalProtectionError));
      return Outcome::kFailed;
    case Arrival::kMemoryLost:
      qp_.counters.add(Counter::kMemoryFaults);
      [[fallthrough]];
    case Arrival::kNoAccess:
      return drop_message(Counter::kDropNoAccess);
    default:
      return drop_message(Counter::kDropMessage);
  }
}

// The rest of the message is dropped as well, for it is out of place then. A receive request that it took is there for
// the next one.
Outcome UcQp::drop_message(Counter reason) {
  qp_.counters.add(reason);
  message_.abandon();
  return Outcome::kGoesOn;
}

void UcQp::on_congestion_mark(Time now) {
  qp_.now = now;
  qp_.counters.add(Counter::kRxCongestionMarks);
  if (receiving()) congestion_.on_mark();
}

Agenda UcQp::agenda(Time now) const {
  const bool has_packets = sending() && requester_.wants_to_send();
  const bool allowed = now >= congestion_.resume_at();
  return {.send = congestion_.cnp_pending() || (has_packets && allowed),
          .deadline = has_packets && !allowed ? congestion_.resume_at() : kNever};
}

bool UcQp::pull(io::TxPacket& out, Time now) {
  qp_.now = now;
  if (congestion_.cnp_pending()) {
    congestion_.pull_cnp(out);
    return true;
  }
  if (!sending() || !congestion_.may_send()) return false;
  const Outcome outcome = requester_.run_local_operations();
  const bool sent = outcome == Outcome::kGoesOn && requester_.pull(out);
  if (sent) congestion_.on_sent(out);
  settle(outcome);
  return sent;
}

}  // namespace uroce::transport

#include "engine/transport/unreliable/uc_qp.h"

namespace uroce::transport {

using queue::WcStatus;
using wire::Operation;
using wire::Packet;

void UcQp::enter(QpState to) {
  UnreliableQp::enter(to);
  if (to == QpState::kReset) {
    congestion_.reset();
    message_ = Message::kNone;
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
  if (!length_valid(packet)) return drop_message(Counter::kDropMessage);
  if (packet.info->operation == Operation::kSend) {
    on_send(packet);
  } else {
    on_write(packet);
  }
  settle();
}

// IBTA 9.8.2.2: the next packet has the next PSN. After a gap, or a packet out of place, everything up to the beginning
// of a message is dropped, and the message that was under way with it.
bool UcQp::in_sequence(const Packet& packet) {
  const bool gap = packet.bth.psn != expected_;
  expected_ = packet.bth.psn + 1;
  if (gap) {
    qp_.counters.add(Counter::kRxOutOfSequence);
    if (message_ != Message::kNone) drop_message(Counter::kDropMessage);
  }
  if (packet.info->first) {
    if (message_ != Message::kNone) drop_message(Counter::kDropMessage);
    return true;
  }
  const Message continued = packet.info->operation == Operation::kSend ? Message::kSend : Message::kWrite;
  if (message_ == continued) return true;
  drop_message(Counter::kDropMessage);
  return false;
}

// IBTA 9.7.4.1.6: First and Middle are full and unpadded, Last is not empty, nothing is longer than the path MTU.
bool UcQp::length_valid(const Packet& packet) const {
  const size_t size = packet.payload.size();
  if (!packet.info->last) return size == qp_.attr.path_mtu && packet.bth.pad == 0;
  return size <= qp_.attr.path_mtu && (size > 0 || packet.info->first);
}

void UcQp::on_send(const Packet& packet) {
  if (packet.info->first) {
    if (!receive_ && !receive_.take()) return drop_message(Counter::kDropNoReceive);
    received_ = 0;
    message_ = Message::kSend;
  }
  if (uint64_t{received_} + packet.payload.size() > receive_.length()) {
    message_ = Message::kNone;
    return drop_too_long();
  }
  if (const WcStatus status = receive_.place(received_, packet.payload); status != WcStatus::kSuccess) {
    return fail_receive(status);
  }
  received_ += static_cast<uint32_t>(packet.payload.size());
  if (!packet.info->last) return;
  message_ = Message::kNone;
  receive_.complete(packet, received_);
}

void UcQp::on_write(const Packet& packet) {
  if (!write_.fits(packet)) return drop_message(Counter::kDropMessage);
  if (packet.info->has_immdt && !receive_ && !receive_.take()) return drop_message(Counter::kDropNoReceive);
  switch (write_.place(packet)) {
    case WriteTarget::Result::kNoAccess:
      return drop_message(Counter::kDropNoAccess);
    case WriteTarget::Result::kMemoryLost:
      qp_.counters.add(Counter::kMemoryFaults);
      return drop_message(Counter::kDropNoAccess);
    case WriteTarget::Result::kOk:
      break;
  }
  message_ = packet.info->last ? Message::kNone : Message::kWrite;
  if (packet.info->has_immdt) receive_.complete(packet, write_.received());
}

// The rest of the message is dropped as well, for it is out of place then. A receive request that it took is there for
// the next one.
void UcQp::drop_message(Counter reason) {
  qp_.counters.add(reason);
  message_ = Message::kNone;
}

// The application's receive buffer may not be written: that is an error of this side.
void UcQp::fail_receive(WcStatus status) {
  receive_.fail(status);
  message_ = Message::kNone;
  qp_.failed = true;
}

void UcQp::on_congestion_mark(Time now) {
  qp_.now = now;
  qp_.counters.add(Counter::kRxCongestionMarks);
  if (receiving()) congestion_.on_mark();
}

bool UcQp::wants_to_send(Time now) const {
  if (congestion_.cnp_pending()) return true;
  return sending() && now >= congestion_.resume_at() && sender_.wants_to_send();
}

bool UcQp::pull(io::TxPacket& out, Time now) {
  qp_.now = now;
  if (congestion_.cnp_pending()) {
    congestion_.pull_cnp(out);
    return true;
  }
  if (!sending() || !congestion_.may_send()) return false;
  const bool sent = sender_.pull(out);
  if (sent) congestion_.on_sent(out);
  settle();
  return sent;
}

Time UcQp::deadline() const {
  const bool held_back = sending() && congestion_.resume_at() > qp_.now && sender_.wants_to_send();
  return held_back ? congestion_.resume_at() : kNever;
}

}  // namespace uroce::transport

#include "engine/datapath.h"

#include <algorithm>
#include <utility>

#include "engine/io/memory_link.h"
#include "wire/icrc.h"

namespace uroce::engine {

namespace {

// QPNs 0 and 1 and the multicast QPN stay out of the range wherever it lies.
uint32_t draw_first_qpn(const std::function<uint32_t()>& random) {
  const uint32_t ranges = (1u << 24) / Limits::kMaxQp;
  return (1 + random() % (ranges - 2)) * Limits::kMaxQp;
}

Counter parse_drop(wire::ParseError error) {
  return error == wire::ParseError::kUnknownOpcode ? Counter::kDropUnknownOpcode : Counter::kDropParse;
}

}  // namespace

Datapath::Datapath(std::function<uint32_t()> random)
    : mrs_(random), qpns_(draw_first_qpn(random), Limits::kMaxQp, random), loop_(io::make_memory_loop()) {
  loop_burst_ = std::make_unique<TxBurst>(*loop_, [this](const wire::TxPacket& packet) { on_unreadable(packet); });
}

Datapath::~Datapath() = default;

void Datapath::attach(std::unique_ptr<io::PacketIo> wire, std::function<void(Qp&)> need_neighbour) {
  wire_ = std::move(wire);
  wire_burst_ = std::make_unique<TxBurst>(*wire_, [this](const wire::TxPacket& packet) { on_unreadable(packet); });
  need_neighbour_ = std::move(need_neighbour);
}

void Datapath::ring(Qp& qp) {
  if (qp.rung.exchange(true, std::memory_order_seq_cst)) return;
  Qp* head = rung_.load(std::memory_order_relaxed);
  do {
    qp.next_rung = head;
  } while (!rung_.compare_exchange_weak(head, &qp, std::memory_order_seq_cst));
}

void Datapath::collect_doorbells(Time now) {
  if (rung_.load(std::memory_order_relaxed) == nullptr) return;
  Qp* qp = rung_.exchange(nullptr, std::memory_order_seq_cst);
  while (qp != nullptr) {
    Qp* const next = qp->next_rung;
    qp->rung.store(false, std::memory_order_seq_cst);
    qp->rc.on_posted(now);
    reschedule(*qp, now);
    qp = next;
  }
}

Datapath::Moved Datapath::iterate(Caller caller, Time now) {
  Moved moved;
  due_.splice(due_.end(), owed_);
  collect_doorbells(now);
  moved.sent += transmit(now);
  moved.received += receive(*wire_, now);
  while (const size_t looped = receive(*loop_, now)) moved.received += looped;
  expire_timers(now);
  if (caller == Caller::kBackground) due_.splice(due_.end(), owed_);
  moved.sent += transmit(now);
  return moved;
}

bool Datapath::unfinished() const {
  return !ready_.empty() || !owed_.empty() || !due_.empty() || wire_burst_->waiting() || loop_burst_->waiting() ||
         !loop_->prepare_to_wait();
}

void Datapath::reschedule(Qp& qp, Time now) {
  if (!qp.ready_hook.is_linked() && qp.rc.wants_to_send(now)) ready_.push_back(qp);
  if (qp.rc.ack_owed()) {
    if (qp.rc.ack_urgent()) {
      qp.ack_hook.unlink();
      due_.push_back(qp);
    } else if (!qp.ack_hook.is_linked()) {
      owed_.push_back(qp);
    }
  }
  // A later deadline needs no new place: on_timer() is told the time and the place is taken anew then.
  if (const Time deadline = qp.rc.deadline(); deadline < qp.timer_at || !qp.timer_hook.is_linked()) {
    qp.timer_hook.unlink();
    qp.timer_at = deadline;
    if (deadline != kNever) timers_.insert(qp);
  }
  publish_state(qp, now);
}

// Receives posted while the QP went into the error state: either the poster sees the new state and rings, or what it
// posted is seen here.
void Datapath::publish_state(Qp& qp, Time now) {
  if (qp.visible_state.load(std::memory_order_relaxed) == qp.rc.state()) return;
  qp.visible_state.store(qp.rc.state(), std::memory_order_seq_cst);
  qp.rc.on_posted(now);
}

void Datapath::expire_timers(Time now) {
  while (!timers_.empty() && timers_.begin()->timer_at <= now) {
    Qp& qp = *timers_.begin();
    qp.timer_hook.unlink();
    qp.timer_at = kNever;
    qp.rc.on_timer(now);
    reschedule(qp, now);
    // Whatever the transport asks for, time moves on.
    if (qp.timer_hook.is_linked() && qp.timer_at <= now) {
      qp.timer_hook.unlink();
      qp.timer_at = now + std::chrono::microseconds(1);
      timers_.insert(qp);
    }
  }
}

// --- sending --------------------------------------------------------------------------------------------------------

size_t Datapath::transmit(Time now) {
  transmit_time_ = now;
  int budget = kTransmitLimit;
  while (!ready_.empty() && budget > 0) {
    Qp& qp = ready_.front();
    ready_.pop_front();
    const int before = budget;
    const bool room = transmit_quantum(qp, now, budget);
    reschedule(qp, now);
    if (room && budget == before) qp.ready_hook.unlink();  // had nothing after all; the next event brings it back
    if (!room) break;
  }
  const size_t acks = transmit_acks(now);
  wire_burst_->flush();
  loop_burst_->flush();
  return static_cast<size_t>(kTransmitLimit - budget) + acks;
}

// A CNP goes ahead of data: it has a class of service of its own (wire.md "ConnectX and DCQCN").
const wire::Envelope* Datapath::envelope_for(const wire::TxPacket& packet, Qp& qp) {
  if (packet.header[0] != static_cast<uint8_t>(wire::Opcode::kCnp)) return &qp.path.envelope;
  qp.cnp_envelope = qp.path.envelope;
  qp.cnp_envelope.traffic_class = wire::kCnpTrafficClass;
  return &qp.cnp_envelope;
}

// False: backpressure.
bool Datapath::transmit_quantum(Qp& qp, Time now, int& budget) {
  const bool sendable_now = sendable(qp);
  for (int i = 0; i < kQuantum && budget > 0; ++i) {
    wire::TxPacket* const packet = burst(qp).next();
    if (packet == nullptr) return false;
    if (!qp.rc.pull(*packet, now)) return true;
    --budget;
    packet->envelope = envelope_for(*packet, qp);
    packet->source_qpn = qp.rc.qpn();
    if (sendable_now) {
      burst(qp).commit();
    } else {
      counters_.add(Counter::kDropNoNeighbour);  // as if lost on the wire: the retry timer repairs or gives up
    }
  }
  return true;
}

size_t Datapath::transmit_acks(Time now) {
  size_t acks = 0;
  while (!due_.empty()) {
    Qp& qp = due_.front();
    wire::TxPacket* const packet = burst(qp).next();
    if (packet == nullptr) break;
    due_.pop_front();
    if (!qp.rc.pull_ack(*packet, now)) continue;  // responses go first; the last of them brings the QP back here
    packet->envelope = &qp.path.envelope;
    packet->source_qpn = qp.rc.qpn();
    if (sendable(qp)) burst(qp).commit();
    ++acks;
  }
  return acks;
}

bool Datapath::sendable(Qp& qp) {
  if (!qp.path.resolved && need_neighbour_) need_neighbour_(qp);
  return qp.path.resolved;
}

// The application unmapped or protected memory that a packet was to be made from.
void Datapath::on_unreadable(const wire::TxPacket& packet) {
  counters_.add(Counter::kMemoryFaults);
  Qp* const qp = qpns_.find(packet.source_qpn);
  if (qp == nullptr) return;
  qp->rc.on_unreadable(packet, transmit_time_);
  reschedule(*qp, transmit_time_);
}

void Datapath::forget_waiting_packets() {
  if (wire_burst_) wire_burst_->drop();
  loop_burst_->drop();
}

// What the QP has executed is acknowledged before it stops answering: the peer would ask until it gives up.
void Datapath::settle_acks(Qp& qp, Time now) {
  if (!qp.rc.ack_owed()) return;
  transmit_time_ = now;
  qp.ack_hook.unlink();
  due_.push_front(qp);
  transmit_acks(now);
  burst(qp).flush();
}

void Datapath::remove(Qp& qp, Time now) {
  collect_doorbells(now);
  settle_acks(qp, now);
  forget_waiting_packets();
  qp.ready_hook.unlink();
  qp.ack_hook.unlink();
  qp.timer_hook.unlink();
  qp.all_hook.unlink();
  qpns_.release(qp.rc.qpn());
  purge_completions(qp);
}

void Datapath::purge_completions(Qp& qp) {
  qp.init.send_cq->purge(qp.rc.qpn().value());
  if (qp.init.recv_cq != qp.init.send_cq) qp.init.recv_cq->purge(qp.rc.qpn().value());
}

// --- receiving ------------------------------------------------------------------------------------------------------

size_t Datapath::receive(io::PacketIo& io, Time now) {
  const size_t count = io.receive(arrived_);
  for (size_t i = 0; i < count; ++i) deliver(arrived_[i], &io == loop_.get(), now);
  return count;
}

// The order of checks: length, opcode, TVer, QPN, addresses, P_Key, ICRC, then the transport's (faults.md, Security).
void Datapath::deliver(const io::RxPacket& rx, bool looped, Time now) {
  wire::Packet packet;
  if (const wire::ParseError error = wire::parse_packet(rx.ib, packet); error != wire::ParseError::kNone) {
    return counters_.add(parse_drop(error));
  }
  Qp* const qp = qpns_.find(packet.bth.dest_qp);
  if (qp == nullptr) return counters_.add(Counter::kDropUnknownQp);
  if (const auto reason = refuse(rx, looped, packet, *qp)) return counters_.add(*reason);
  if ((rx.envelope.traffic_class & wire::kEcnMask) == wire::kEcnCe && packet.info->operation != wire::Operation::kCnp) {
    qp->rc.on_congestion_mark(now);
  }
  qp->rc.on_packet(packet, now);
  reschedule(*qp, now);
}

std::optional<Counter> Datapath::refuse(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                        const Qp& qp) const {
  using transport::QpState;
  constexpr uint16_t kPkeyBase = 0x7fff;  // bit 15 is membership, not identity (IBTA 10.9.3)
  const QpState state = qp.rc.state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kErr) return Counter::kDropQpState;
  const wire::Envelope& ours = qp.path.envelope;
  // A peer with our own address is not on the wire.
  if (rx.envelope.source != ours.destination || rx.envelope.destination != ours.source || looped != qp.path.loopback) {
    return Counter::kDropWrongAddress;
  }
  if ((packet.bth.pkey & kPkeyBase) != (Limits::kPkey & kPkeyBase)) return Counter::kDropWrongPkey;
  if (!wire::icrc_matches(rx.envelope, rx.ib)) return Counter::kDropBadIcrc;
  return std::nullopt;
}

}  // namespace uroce::engine

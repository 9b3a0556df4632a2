#include "engine/datapath/datapath.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "engine/io/memory_link.h"
#include "wire/icrc.h"

namespace uroce::engine {

namespace {

Counter parse_drop(wire::ParseError error) {
  return error == wire::ParseError::kUnknownOpcode ? Counter::kDropUnknownOpcode : Counter::kDropParse;
}

}  // namespace

Datapath::Datapath(Tables& tables) : tables_(tables) {
  attach_loop(io::make_memory_loop());
  wanted_.reserve(kMostWanted);
}

Datapath::~Datapath() {
  while (!waited_for_.empty()) stop_waiting_for(waited_for_.front());
}

void Datapath::attach_loop(std::unique_ptr<io::PacketIo> loop) {
  loop_ = std::move(loop);
  loop_burst_ = std::make_unique<TxBurst>(*loop_, [this](const io::TxPacket& packet) { on_done(packet); });
}

std::unique_ptr<io::PacketIo> Datapath::attach(std::unique_ptr<io::PacketIo> wire, std::function<void()> ask,
                                               std::unique_ptr<io::PacketIo> loop) {
  if (loop) attach_loop(std::move(loop));
  auto burst = std::make_unique<TxBurst>(*wire, [this](const io::TxPacket& packet) { on_done(packet); });
  wire_.swap(wire);
  wire_burst_ = std::move(burst);
  kernel_routes_ = wire_->kernel_routes();
  ask_ = std::move(ask);
  return wire;
}

void Datapath::ring(Qp& qp) {
  if (qp.rung.exchange(true, std::memory_order_seq_cst)) return;
  Qp* head = rung_.load(std::memory_order_relaxed);
  do {
    qp.next_rung = head;
  } while (!rung_.compare_exchange_weak(head, &qp, std::memory_order_seq_cst));
}

// At most `limit` of them; the others keep their turn. The stack has the latest on top.
void Datapath::collect_doorbells(Time now, size_t limit) {
  if (rung_.load(std::memory_order_relaxed) != nullptr) {
    Qp* const latest = rung_.exchange(nullptr, std::memory_order_seq_cst);
    Qp* first = nullptr;
    for (Qp* qp = latest; qp != nullptr;) {
      Qp* const next = qp->next_rung;
      qp->next_rung = first;
      first = std::exchange(qp, next);
    }
    (first_rung_ == nullptr ? first_rung_ : last_rung_->next_rung) = first;
    last_rung_ = latest;
  }
  for (; first_rung_ != nullptr && limit > 0; --limit) {
    Qp& qp = *std::exchange(first_rung_, first_rung_->next_rung);
    // Not a mere store: it takes over what the poster published who found the bell rung.
    qp.rung.exchange(false, std::memory_order_seq_cst);
    qp.transport->on_posted(now);
    reschedule(qp, now);
  }
}

Datapath::Moved Datapath::iterate(Caller caller, Time now) {
  now = now_ = std::max(now_, now);  // never backwards, whoever tells it
  const queue::CompletionBurst::Publisher published(completions_);
  Moved moved;
  waited_.splice(waited_.end(), owed_);
  collect_doorbells(now, kDoorbellLimit);
  if (caller != Caller::kPosting) look_after_waiting(now);
  moved.sent += transmit(caller, now);
  if (caller == Caller::kPosting && !moved.many()) return moved;
  moved.received += receive_wire(now);
  while (const size_t looped = receive(*loop_, now)) moved.received += looped;
  expire_timers(now);
  moderated_cqs_.expire(now);
  if (caller == Caller::kBackground) waited_.splice(waited_.end(), owed_);
  moved.sent += transmit(caller, now);
  return moved;
}

bool Datapath::unfinished() const {
  return first_rung_ != nullptr || !ready_.empty() || !owed_.empty() || !waited_.empty() || !urgent_.empty() ||
         wire_burst_->waiting() || loop_burst_->waiting() || next_hops_changed_.load(std::memory_order_seq_cst) ||
         !loop_->prepare_to_wait();
}

void Datapath::reschedule(Qp& qp, Time now) {
  const bool may_send = !qp.waits();
  const transport::Agenda next = qp.transport->agenda(now);
  if (may_send && next.send && !qp.ready_hook.is_linked()) ready_.push_back(qp);
  if (may_send && next.ack) {
    if (next.ack_urgent) {
      send_ack_first(qp);
    } else if (!qp.ack_hook.is_linked()) {
      owed_.push_back(qp);
    }
  }
  timers_.set(qp, next.deadline);
  publish_state(qp, now);
}

// Receives posted while the QP went into the error state: either the poster sees the new state and rings, or what it
// posted is seen here.
void Datapath::publish_state(Qp& qp, Time now) {
  if (qp.visible_state.load(std::memory_order_relaxed) == qp.transport->state()) return;
  qp.visible_state.store(qp.transport->state(), std::memory_order_seq_cst);
  qp.transport->on_posted(now);
}

void Datapath::expire_timers(Time now) {
  timers_.expire(now, kTimerLimit, [this, now](TimerWheel::Timer& timer) {
    Qp& qp = static_cast<Qp&>(timer);
    qp.transport->on_timer(now);
    reschedule(qp, now);
  });
}

// --- sending --------------------------------------------------------------------------------------------------------

size_t Datapath::transmit(Caller caller, Time now) {
  transmit_time_ = now;
  int budget = kTransmitLimit;
  size_t acks = transmit_acks(urgent_);
  while (!ready_.empty() && budget > 0) {
    Qp& qp = ready_.front();
    const int before = budget;
    const bool room = transmit_quantum(qp, now, budget);  // where memory runs out in there, the QP is still the first
    qp.ready_hook.unlink();
    reschedule(qp, now);
    if (room && budget == before) qp.ready_hook.unlink();  // had nothing after all; the next event brings it back
    if (!room) break;
  }
  acks += transmit_acks(waited_);
  if (caller == Caller::kPosting) {
    wire_burst_->flush_post();
    loop_burst_->flush();
  } else {
    flush();
  }
  const size_t sent = static_cast<size_t>(kTransmitLimit - budget) + acks;
  sent_since_receive_ += sent;
  return sent;
}

void Datapath::flush() {
  if (wire_burst_) wire_burst_->flush();
  loop_burst_->flush();
}

// What has priority has a class of service of its own (wire.md "ConnectX and DCQCN").
const wire::Envelope* Datapath::envelope_for(const io::TxPacket& packet, Qp& qp, const Path& path) {
  if (!packet.priority) return &path.envelope;
  qp.cnp_envelope = path.envelope;
  qp.cnp_envelope.traffic_class = wire::kCnpTrafficClass;
  return &qp.cnp_envelope;
}

// Where the QP's next packet goes. Null: nowhere, its address handle is gone.
Path* Datapath::next_path(Qp& qp) {
  if (!qp.is_ud()) return &qp.path;
  AddressHandle* const handle = tables_.address_handles.find(qp.transport->next_address_handle());
  Destination* const to = handle == nullptr ? nullptr : handle->path.to.get();
  qp.transport->obey(to == nullptr ? nullptr : &to->congestion);
  return handle == nullptr ? nullptr : &handle->path;
}

// False: backpressure.
bool Datapath::transmit_quantum(Qp& qp, Time now, int& budget) {
  for (int i = 0; i < kQuantum && budget > 0; ++i) {
    Path* const path = next_path(qp);
    TxBurst& burst_to = path == nullptr ? *wire_burst_ : burst(*path);
    const Reach within = path == nullptr ? Reach::kNot : reach(*path, qp, now);
    if (within == Reach::kLater) {
      wait_for_next_hop(*path->to, qp);
      return true;
    }
    io::TxPacket* const packet = burst_to.next();
    if (packet == nullptr) return false;
    if (!qp.transport->pull(*packet, now)) return true;
    --budget;
    packet->source_qpn = qp.transport->qpn();
    const bool fits = path == nullptr || !qp.is_ud() || fits_route(*packet, *path);
    if (within == Reach::kNow && fits) {
      packet->envelope = envelope_for(*packet, qp, *path);
      burst_to.commit();
      if (is_multicast(path->envelope.destination)) copy_to_own_group(*packet);
    } else {
      // As if lost on the wire: a retry timer repairs or gives up.
      counters_.add(path == nullptr ? Counter::kDropNoAddressHandle
                    : fits          ? Counter::kDropNoNeighbour
                                    : Counter::kDropPathMtu);
      if (packet->completes) on_done(*packet);
    }
  }
  return true;
}

// Whether a datagram gets to its destination in one piece. A UD QP takes messages as long as its port allows; the route
// of one of its address handles may allow less. (A connected QP's path MTU was checked against its route.)
bool Datapath::fits_route(const io::TxPacket& packet, const Path& path) {
  if (path.to == nullptr || path.loopback()) return true;
  const size_t ip_header = path.envelope.destination.is_v4() ? wire::kIpv4Size : wire::kIpv6Size;
  const uint32_t mtu = path.to->route.mtu;
  return mtu == 0 || ip_header + packet.udp_length() <= mtu;
}

// Members of this process get their copies here: what goes out does not come back in.
void Datapath::copy_to_own_group(const io::TxPacket& packet) {
  if (tables_.groups.members(packet.envelope->destination).empty()) return;
  io::TxPacket* const copy = loop_burst_->next();
  if (copy == nullptr) return;
  *copy = packet;
  copy->completes = false;
  loop_burst_->commit();
}

size_t Datapath::transmit_acks(AckList& qps) {
  size_t acks = 0;
  while (!qps.empty()) {
    Qp& qp = qps.front();
    const Reach within = reach(qp.path, qp, transmit_time_);
    if (within == Reach::kLater) {  // reschedule() brings it back
      qps.pop_front();
      wait_for_next_hop(*qp.path.to, qp);
      continue;
    }
    io::TxPacket* const packet = burst(qp.path).next();
    if (packet == nullptr) break;
    qps.pop_front();
    if (!qp.transport->pull_ack(*packet, transmit_time_))
      continue;  // responses go first; the last of them brings the QP back here
    packet->envelope = &qp.path.envelope;
    packet->source_qpn = qp.transport->qpn();
    if (within == Reach::kNow) burst(qp.path).commit();
    ++acks;
  }
  return acks;
}

// --- next hops ------------------------------------------------------------------------------------------------------

// The bytes of a packet have been made, or could not be: the application unmapped or protected the memory.
void Datapath::on_done(const io::TxPacket& packet) {
  if (packet.unreadable) counters_.add(Counter::kMemoryFaults);
  Qp* const qp = tables_.qpns.find(packet.source_qpn);
  if (qp == nullptr) return;
  if (packet.unreadable) {
    qp->transport->on_unreadable(packet, transmit_time_);
  } else {
    qp->transport->on_taken(packet, transmit_time_);
  }
  reschedule(*qp, transmit_time_);
}

void Datapath::forget_waiting_packets() {
  forget_waiting_if([](const io::TxPacket&) { return true; });
}

void Datapath::forget_waiting_packets(const Qp& qp) {
  const wire::Qpn qpn = qp.transport->qpn();
  forget_waiting_if([qpn](const io::TxPacket& packet) { return packet.source_qpn == qpn; });
}

void Datapath::forget_waiting_packets(const memory::MemoryRegion& region) {
  const auto base = reinterpret_cast<uintptr_t>(region.base);
  forget_waiting_if([&](const io::TxPacket& packet) {
    return std::any_of(packet.fragments.begin(), packet.fragments.begin() + packet.fragment_count,
                       [&](const io::Fragment& fragment) {
                         const auto data = reinterpret_cast<uintptr_t>(fragment.data);
                         return data < base + region.length && base < data + fragment.size;
                       });
  });
}

void Datapath::forget_waiting_packets(const AddressHandle& handle) {
  forget_waiting_if([&](const io::TxPacket& packet) { return packet.envelope == &handle.path.envelope; });
}

// What the QP has executed is acknowledged before it stops answering: the peer would ask until it gives up.
void Datapath::settle_acks(Qp& qp, Time now) {
  if (!qp.transport->agenda(now).ack) return;
  transmit_time_ = now;
  qp.ack_hook.unlink();
  urgent_.push_front(qp);
  transmit_acks(urgent_);
  burst(qp.path).flush();
}

int Datapath::modify(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask, std::optional<Path> path,
                     Time now) {
  if (mask & transport::kQpState) settle_acks(qp, now);
  const int error = qp.transport->modify(attributes, mask, now);
  if (error == 0 && path) {
    qp.stop_waiting();
    qp.transport->share_probes(path->to->probes);
    qp.transport->obey(&path->to->congestion);
    qp.path = std::move(*path);
  }
  const transport::QpState state = qp.transport->state();
  // The application has its memory back, so what has not left must not leave any more.
  const bool ended = state == transport::QpState::kReset || state == transport::QpState::kErr;
  if (error == 0 && ended) forget_waiting_packets(qp);
  if (error == 0 && state == transport::QpState::kReset) purge_completions(qp);
  reschedule(qp, now);
  return error;
}

void Datapath::remove(Qp& qp, Time now) {
  collect_doorbells(now, SIZE_MAX);
  settle_acks(qp, now);
  forget_waiting_packets(qp);
  qp.stop_waiting();
  qp.ready_hook.unlink();
  qp.ack_hook.unlink();
  timers_.cancel(qp);
  qp.all_hook.unlink();
  purge_completions(qp);
}

void Datapath::purge_completions(Qp& qp) {
  queue::CompletionQueue *const send_cq = qp.init.send_cq, *const recv_cq = qp.init.recv_cq;
  if (send_cq != nullptr) qp.transport->purge(*send_cq);
  if (recv_cq != nullptr && recv_cq != send_cq) qp.transport->purge(*recv_cq);
}

// --- receiving ------------------------------------------------------------------------------------------------------

// As many as were sent since, or all that are there: who sends a lot is answered a lot, and may be sent as much.
size_t Datapath::receive_wire(Time now) {
  const size_t wanted = std::min(std::exchange(sent_since_receive_, 0), kReceiveLimit);
  size_t received = 0;
  do {
    const size_t count = receive(*wire_, now);
    if (count == 0) break;
    received += count;
  } while (received < wanted);
  return received;
}

size_t Datapath::receive(io::PacketIo& io, Time now) {
  const size_t count = io.receive(arrived_);
  const bool looped = &io == loop_.get();
  if (count > 0 && io.wants_verdicts()) {
    deliver_watched(io, count, looped, now);
  } else {
    for (size_t i = 0; i < count; ++i) deliver(arrived_[i], looped, now);
  }
  completions_.publish();
  return count;
}

// The same while somebody looks on: what became of a packet is what the counters say.
void Datapath::deliver_watched(io::PacketIo& io, size_t count, bool looped, Time now) {
  std::array<uint64_t, kReceiveBurst> verdicts;
  Counters::Snapshot before;
  for (size_t i = 0; i < count; ++i) {
    counters_.snapshot(before);
    deliver(arrived_[i], looped, now);
    verdicts[i] = counters_.moved_since(before);
  }
  io.on_verdicts(std::span(verdicts).first(count));
}

// The order of checks: length, opcode, TVer, QPN, addresses, P_Key, ICRC, then the transport's (faults.md "Security").
void Datapath::deliver(const io::RxPacket& rx, bool looped, Time now) {
  wire::Packet packet;
  if (const wire::ParseError error = wire::parse_packet(rx.ib, packet); error != wire::ParseError::kNone) {
    return counters_.add(parse_drop(error));
  }
  packet.envelope = &rx.envelope;
  if (packet.bth.dest_qp.value() == kMulticastQpn && is_multicast(rx.envelope.destination)) {
    return deliver_to_group(rx, looped, packet, now);
  }
  Qp* const qp = tables_.qpns.find(packet.bth.dest_qp);
  if (qp == nullptr) return counters_.add(Counter::kDropUnknownQp);
  if (const auto reason = refuse(rx, looped, packet, *qp)) return counters_.add(*reason);
  if ((rx.envelope.traffic_class & wire::kEcnMask) == wire::kEcnCe && packet.info->operation != wire::Operation::kCnp) {
    qp->transport->on_congestion_mark(now);
  }
  const uint32_t told = events_told(*qp);
  qp->transport->on_packet(packet, now);
  reschedule(*qp, now);
  if (events_told(*qp) != told && qp->transport->agenda(now).ack) send_ack_first(*qp);
}

// Not whether the queue is armed: the application may be awake and have armed it again before on_packet() returns.
uint32_t Datapath::events_told(const Qp& qp) {
  return qp.init.recv_cq == nullptr ? 0 : qp.init.recv_cq->reported();
}

void Datapath::send_ack_first(Qp& qp) {
  qp.ack_hook.unlink();
  urgent_.push_back(qp);
}

// A copy for every member (IBTA 10.5.2). One that does not want to hear itself gets none of its own messages.
void Datapath::deliver_to_group(const io::RxPacket& rx, bool looped, const wire::Packet& packet, Time now) {
  const std::span<Qp* const> members = tables_.groups.members(rx.envelope.destination);
  if (members.empty() || !packet.info->has_deth) return counters_.add(Counter::kDropNoGroup);
  if (!wire::icrc_matches(rx.envelope, rx.ib)) return counters_.add(Counter::kDropBadIcrc);  // once for all of them
  for (Qp* const qp : members) {
    if (looped && qp->init.block_own_multicast && packet.deth.source_qp == qp->transport->qpn()) continue;
    if (const auto reason = refuse_by_headers(rx, looped, packet, *qp)) {
      counters_.add(*reason);
      continue;
    }
    qp->transport->on_packet(packet, now);
    reschedule(*qp, now);
  }
}

bool Datapath::is_own(const wire::IpAddress& address) const {
  return std::find(tables_.addresses.begin(), tables_.addresses.end(), address) != tables_.addresses.end();
}

// The packet's addresses are those that the QP may hear from. A peer with our own address is not on the wire.
bool Datapath::belongs_here(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const {
  const wire::Envelope& theirs = rx.envelope;
  if (qp.is_ud()) {
    const bool to_group = packet.bth.dest_qp.value() == kMulticastQpn;
    return is_own(theirs.source) == looped && (to_group || is_own(theirs.destination));
  }
  const wire::Envelope& ours = qp.path.envelope;
  return theirs.source == ours.destination && theirs.destination == ours.source && looped == qp.path.loopback();
}

std::optional<Counter> Datapath::refuse_by_headers(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                                   const Qp& qp) const {
  using transport::QpState;
  constexpr uint16_t kPkeyBase = 0x7fff;  // bit 15 is membership, not identity (IBTA 10.9.3)
  const QpState state = qp.transport->state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kErr) return Counter::kDropQpState;
  if (!belongs_here(rx, looped, packet, qp)) return Counter::kDropWrongAddress;
  if ((packet.bth.pkey & kPkeyBase) != (Limits::kPkey & kPkeyBase)) return Counter::kDropWrongPkey;
  return std::nullopt;
}

std::optional<Counter> Datapath::refuse(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                        const Qp& qp) const {
  if (const auto reason = refuse_by_headers(rx, looped, packet, qp)) return reason;
  if (!wire::icrc_matches(rx.envelope, rx.ib)) return Counter::kDropBadIcrc;
  return std::nullopt;
}

}  // namespace uroce::engine

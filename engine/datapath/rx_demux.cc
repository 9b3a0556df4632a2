// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/rx_demux.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "wire/icrc.h"

namespace uroce::engine {

namespace {

Counter parse_drop(wire::ParseError error) {
  return error == wire::ParseError::kUnknownOpcode ? Counter::kDropUnknownOpcode : Counter::kDropParse;
}

wire::ParseError parse(const io::RxPacket& rx, wire::Packet& packet) {
  return rx.apart.empty() ? wire::parse_packet(rx.ib, packet) : wire::parse_packet(rx.ib, rx.apart, packet);
}

// Events that the QP's arrivals have raised. Not whether the queue is armed: the application may be awake and have
// armed it again before on_packet() returns.
uint32_t events_raised(const Qp& qp) {
  return qp.recv_cq == nullptr ? 0 : qp.recv_cq->reported();
}

bool is_intact(const io::RxPacket& rx) {
  return rx.without_icrc || wire::icrc_matches(rx.envelope, rx.ib);
}

}  // namespace

size_t RxDemux::receive(io::PacketIo& io, bool looped, Time now) {
  const size_t count = io.receive(arrived_);
  if (count == 0) return 0;
  if (io.wants_verdicts()) {
    deliver_watched(io, count, looped, now);
  } else {
    deliver_burst(count, looped, now);
  }
  return count;
}

// Where many QPs take turns their state is in no cache. While one packet is delivered, what those behind it need is on
// its way: the places of their QPs in the table, then the QPs.
void RxDemux::deliver_burst(size_t count, bool looped, Time now) {
  constexpr size_t kNear = 2, kFar = 6;
  for (size_t i = 0; i < count + kFar; ++i) {
    if (i < count) qpns_.prefetch(destination(i));
    if (const Qp* const qp = coming(i - (kFar - kNear), count)) qp->prefetch();
    if (i >= kFar) deliver(arrived_[i - kFar], looped, now);
  }
}

// Nothing has been checked so far.
wire::Qpn RxDemux::destination(size_t i) const {
  const std::span<const uint8_t> ib = arrived_[i].ib;
  return ib.size() < wire::kBthSize ? wire::Qpn{} : wire::BthView::at(ib.data()).dest_qp();
}

// The QP of packet `i`, if there is that packet and it is not for the same QP as the one before it.
const Qp* RxDemux::coming(size_t i, size_t count) const {
  if (i >= count || (i > 0 && destination(i) == destination(i - 1))) return nullptr;
  return qpns_.find(destination(i));
}

// The same while somebody looks on: what became of a packet is what the counters say.
void RxDemux::deliver_watched(io::PacketIo& io, size_t count, bool looped, Time now) {
  std::array<uint64_t, kBurst> verdicts;
  Counters::Snapshot before;
  for (size_t i = 0; i < count; ++i) {
    counters_.snapshot(before);
    deliver(arrived_[i], looped, now);
    verdicts[i] = counters_.moved_since(before);
  }
  io.on_verdicts(std::span(verdicts).first(count));
}

// The order of checks: length, opcode, TVer, QPN, addresses, P_Key, ICRC, then the transport's (faults.md "Security").
void RxDemux::deliver(const io::RxPacket& rx, bool looped, Time now) {
  wire::Packet packet;
  if (const wire::ParseError error = parse(rx, packet); error != wire::ParseError::kNone) {
    return counters_.add(parse_drop(error));
  }
  packet.envelope = &rx.envelope;
  const bool reliable =
      packet.info->transport == wire::Transport::kRc || packet.info->transport == wire::Transport::kXrc;
  if (reliable) packet.psns = rx.psns;
  if (packet.bth.dest_qp.value() == kMulticastQpn && rx.envelope.destination.is_multicast()) {
    return deliver_to_group(rx, looped, packet, now);
  }
  Qp* const qp = qpns_.find(packet.bth.dest_qp);
  if (qp == nullptr) return counters_.add(Counter::kDropUnknownQp);
  if (const auto reason = refuse(rx, looped, packet, *qp)) return counters_.add(*reason);
  if ((rx.envelope.traffic_class & wire::kEcnMask) == wire::kEcnCe && packet.info->operation != wire::Operation::kCnp) {
    qp->transport->on_congestion_mark(now);
  }
  const uint32_t raised = events_raised(*qp);
  {
    const auto windows = tables_.regions.use_windows();
    qp->transport->on_packet(packet, now);
  }
  schedule_.reschedule(*qp, now);
  if (events_raised(*qp) != raised) schedule_.acks().on_event(*qp);
}

// A copy for every member (IBTA 10.5.2). One that does not want to hear itself gets none of its own messages.
void RxDemux::deliver_to_group(const io::RxPacket& rx, bool looped, const wire::Packet& packet, Time now) {
  const std::span<Qp* const> members = tables_.groups.members(rx.envelope.destination);
  if (members.empty() || !packet.info->has_deth) return counters_.add(Counter::kDropNoGroup);
  if (!is_intact(rx)) return counters_.add(Counter::kDropBadIcrc);  // once for all of them
  for (Qp* const qp : members) {
    const bool own = looped || (tables_.shares_addresses && is_own(rx.envelope.source));
    if (own && qp->blocks_own_multicast && packet.deth.source_qp == qp->transport->qpn()) continue;
    if (const auto reason = refuse_by_headers(rx, looped, packet, *qp)) {
      counters_.add(*reason);
      continue;
    }
    qp->transport->on_packet(packet, now);
    schedule_.reschedule(*qp, now);
  }
}

std::optional<Counter> RxDemux::refuse(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                       const Qp& qp) const {
  if (const auto reason = refuse_by_headers(rx, looped, packet, qp)) return reason;
  if (!is_intact(rx)) return Counter::kDropBadIcrc;
  return std::nullopt;
}

std::optional<Counter> RxDemux::refuse_by_headers(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                                  const Qp& qp) const {
  using transport::QpState;
  constexpr uint16_t kPkeyBase = 0x7fff;  // bit 15 is membership, not identity (IBTA 10.9.3)
  const QpState state = qp.transport->state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kErr) return Counter::kDropQpState;
  if (!belongs_here(rx, looped, packet, qp)) return Counter::kDropWrongAddress;
  if ((packet.bth.pkey & kPkeyBase) != (Limits::kPkey & kPkeyBase)) return Counter::kDropWrongPkey;
  return std::nullopt;
}

// The packet's addresses are those that the QP may hear from. A peer with our own address is not on the wire, unless it
// is another process of this host.
bool RxDemux::belongs_here(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const {
  const wire::Envelope& theirs = rx.envelope;
  if (qp.is_ud()) {
    const bool to_group = packet.bth.dest_qp.value() == kMulticastQpn;
    const bool from_host = looped || tables_.shares_addresses;
    return (is_own(theirs.source) ? from_host : !looped) && (to_group || is_own(theirs.destination));
  }
  const wire::Envelope& ours = qp.path.envelope;
  return theirs.source == ours.destination && theirs.destination == ours.source &&
         looped == tables_.stays_here(qp.path, qp.transport->attributes().dest_qpn);
}

bool RxDemux::is_own(const wire::IpAddress& address) const {
  return std::find(tables_.addresses.begin(), tables_.addresses.end(), address) != tables_.addresses.end();
}

}  // namespace uroce::engine

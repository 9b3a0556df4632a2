// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/rx_demux.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

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

bool is_marked(const io::RxPacket& rx) {
  return (rx.envelope.traffic_class & wire::kEcnMask) == wire::kEcnCe;
}

// The same but for payload, PSN, which is the next one, and what is only for the ICRC.
bool continues(const io::RxPacket& rx, const io::RxPacket& previous) {
  constexpr size_t kBeforePsn = wire::kBthSize - 3;
  return rx.ib.size() == previous.ib.size() && rx.apart.empty() && rx.psns == 1 &&
         std::memcmp(rx.ib.data(), previous.ib.data(), kBeforePsn) == 0 &&
         wire::BthView::at(rx.ib.data()).psn() == wire::BthView::at(previous.ib.data()).psn() + 1 &&
         rx.envelope.source == previous.envelope.source && rx.envelope.destination == previous.envelope.destination &&
         !is_marked(rx) && rx.without_icrc == previous.without_icrc;
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

bool RxDemux::more_to_come(size_t count) const {
  const std::span<const uint8_t> ib = arrived_[count - 1].ib;
  if (ib.empty()) return false;
  const wire::OpcodeInfo& info = wire::opcode_info(wire::Opcode{ib[0]});
  return info.known && info.has_payload && !info.last;
}

// Where many QPs take turns their state is in no cache. While one packet is delivered, what those behind it need is on
// its way: the places of their QPs in the table, then the QPs. Of the QP that had the packet before, it is there.
void RxDemux::deliver_burst(size_t count, bool looped, Time now) {
  constexpr size_t kNear = 2, kFar = 6;
  const Arrivals arrivals = std::span(arrived_).first(count);
  size_t near = 0, far = 0;
  Row row;
  for (size_t i = 0; i < count; i += deliver(arrivals.subspan(i), looped, row, now)) {
    for (far = std::max(far, i); far < std::min(count, i + kFar + 1); ++far) qpns_.prefetch(destination(far));
    for (near = std::max(near, i); near < std::min(count, i + kNear + 1); ++near) {
      if (const Qp* const qp = coming(near)) qp->prefetch();
    }
  }
  end_row(row, now);
  last_destination_ = destination(count - 1);
}

// Nothing has been checked so far.
wire::Qpn RxDemux::destination(size_t i) const {
  const std::span<const uint8_t> ib = arrived_[i].ib;
  return ib.size() < wire::kBthSize ? wire::Qpn{} : wire::BthView::at(ib.data()).dest_qp();
}

// The QP of packet `i`, if it is not that of the one before it.
const Qp* RxDemux::coming(size_t i) const {
  const wire::Qpn before = i > 0 ? destination(i - 1) : last_destination_;
  return destination(i) == before ? nullptr : qpns_.find(destination(i));
}

// The same while somebody looks on: what became of a packet is what the counters say.
void RxDemux::deliver_watched(io::PacketIo& io, size_t count, bool looped, Time now) {
  std::array<uint64_t, kBurst> verdicts;
  Counters::Snapshot before;
  for (size_t i = 0; i < count; ++i) {
    counters_.snapshot(before);
    Row row;
    deliver({&arrived_[i], 1}, looped, row, now);
    end_row(row, now);
    verdicts[i] = counters_.moved_since(before);
  }
  io.on_verdicts(std::span(verdicts).first(count));
}

// The order of checks: length, opcode, TVer, QPN, addresses, P_Key, ICRC, then the transport's (faults.md "Security").
size_t RxDemux::deliver(Arrivals arrivals, bool looped, Row& row, Time now) {
  const io::RxPacket& rx = arrivals.front();
  const auto drop = [this](Counter why) {
    counters_.add(why);
    return size_t{1};
  };
  wire::Packet packet;
  if (const wire::ParseError error = parse(rx, packet); error != wire::ParseError::kNone) {
    return drop(parse_drop(error));
  }
  packet.envelope = &rx.envelope;
  const bool reliable =
      packet.info->transport == wire::Transport::kRc || packet.info->transport == wire::Transport::kXrc;
  if (rx.psns != 1 && !reliable) return drop(Counter::kDropParse);  // engine/transport/common/long_packet.h
  packet.psns = rx.psns;
  if (packet.bth.dest_qp == wire::kMulticastQpn && rx.envelope.destination.is_multicast()) {
    deliver_to_group(rx, looped, packet, now);
    return 1;
  }
  Qp* const qp = qpns_.find(packet.bth.dest_qp);
  if (qp == nullptr) return drop(Counter::kDropUnknownQp);
  if (const auto reason = refuse(rx, looped, packet, *qp)) return drop(*reason);
  if (is_marked(rx) && packet.info->operation != wire::Operation::kCnp) qp->transport->on_congestion_mark(now);
  continue_row(row, *qp, now);
  {
    const auto windows = tables_.regions.use_windows();
    qp->transport->on_packet(packet, now);
  }
  size_t delivered = 1;
  while (const size_t more = deliver_middle_packets(arrivals.subspan(delivered - 1), packet, *qp, now))
    delivered += more;
  return delivered;
}

void RxDemux::continue_row(Row& row, Qp& qp, Time now) {
  if (row.qp == &qp) return;
  end_row(row, now);
  row = {&qp, events_raised(qp)};
}

void RxDemux::end_row(const Row& row, Time now) {
  if (row.qp == nullptr) return;
  schedule_.reschedule(*row.qp, now);
  if (events_raised(*row.qp) != row.raised_before) schedule_.acks().on_event(*row.qp, now);
}

// Of long messages come many packets that differ in PSN and payload only: what was found of the first of them, and is
// in `packet`, holds for those behind it. The ICRC is each one's own. So many at a time that what is summed is still
// in the first level of the cache when it is copied.
size_t RxDemux::deliver_middle_packets(Arrivals arrivals, wire::Packet& packet, Qp& qp, Time now) const {
  constexpr size_t kMost = 16, kMostBytes = 1 << 14;
  const bool middle = packet.info->is_middle() && packet.info->header_size == wire::kBthSize;
  if (!middle || packet.payload.empty() || !arrivals.front().apart.empty() || packet.psns != 1) return 0;
  std::array<const uint8_t*, kMost> payloads;
  const size_t most = std::clamp<size_t>(kMostBytes / packet.payload.size(), 1, kMost);
  size_t count = 0;
  while (count < most && count + 1 < arrivals.size() && continues(arrivals[count + 1], arrivals[count]) &&
         is_intact(arrivals[count + 1])) {
    payloads[count] = arrivals[count + 1].ib.data() + wire::kBthSize;
    ++count;
  }
  if (count == 0) return 0;
  {
    const auto windows = tables_.regions.use_windows();
    qp.transport->on_middle_packets(packet, std::span(payloads).first(count), now);
  }
  packet.bth.psn = packet.bth.psn + static_cast<uint32_t>(count);
  return count;
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
  const QpState state = qp.transport->state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kErr) return Counter::kDropQpState;
  if (!belongs_here(rx, looped, packet, qp)) return Counter::kDropWrongAddress;
  if ((packet.bth.pkey & wire::kPkeyBase) != (Limits::kPkey & wire::kPkeyBase)) return Counter::kDropWrongPkey;
  return std::nullopt;
}

// The packet's addresses are those that the QP may hear from. A peer with our own address is not on the wire, unless it
// is another process of this host.
bool RxDemux::belongs_here(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const {
  const wire::Envelope& theirs = rx.envelope;
  if (qp.is_ud()) {
    const bool to_group = packet.bth.dest_qp == wire::kMulticastQpn;
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

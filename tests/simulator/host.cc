#include "tests/simulator/host.h"

#include <algorithm>
#include <utility>

#include "engine/io/frame_builder.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::simulator {

using transport::QpState;

SimQp::SimQp(Host& host, const QpConfig& config)
    : signal_all(config.signal_all),
      sq(config.depth, config.max_sge, config.max_inline),
      own_rq(config.depth, config.max_sge),
      rq(config.srq != nullptr ? *config.srq : own_rq),
      send_cq(config.cq_capacity, config.send_notifier),
      recv_cq(config.cq_capacity, nullptr),
      rc({.qpn = wire::Qpn(config.qpn),
          .pd = Host::kPd,
          .signal_all = config.signal_all,
          .rq_shared = config.srq != nullptr,
          .mrs = host.mrs,
          .sq = sq,
          .rq = rq,
          .send_cq = send_cq,
          .recv_cq = recv_cq,
          .events = *this,
          .counters = host.counters}),
      host_(host) {
  envelope.source = host.address();
  envelope.traffic_class = wire::kEcnEct0;
}

bool SimQp::connect(const wire::IpAddress& peer, uint32_t peer_qpn, transport::QpAttributes a) {
  using namespace transport;
  envelope.destination = peer;
  rc.share_probes(host_.probe_budgets_[peer.bytes]);
  envelope.source_port = static_cast<uint16_t>(0xc000 | (rc.qpn().value() & 0x3fff));
  a.dest_qpn = wire::Qpn(peer_qpn);
  a.port = 1;
  a.state = QpState::kInit;
  if (modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags) != 0) return false;
  a.state = QpState::kRtr;
  if (modify(a, kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                    kQpMinRnrTimer) != 0) {
    return false;
  }
  a.state = QpState::kRts;
  return modify(a, kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic) == 0;
}

int SimQp::modify(const transport::QpAttributes& attributes, uint32_t mask) {
  const int error = rc.modify(attributes, mask, host_.events.now());
  const bool working = rc.state() != QpState::kErr && rc.state() != QpState::kReset;
  if (error == 0 && !working && host_.tap_ != nullptr) host_.tap_->on_ended(host_, *this);
  host_.wake();
  return error;
}

int SimQp::modify(QpState state) {
  transport::QpAttributes a;
  a.state = state;
  return modify(a, transport::kQpState);
}

bool SimQp::post(queue::SendWqe wqe, std::span<const queue::Sge> sges, std::span<const uint8_t> inline_bytes) {
  queue::SendQueue::Slot slot;
  if (!sq.reserve(0, slot)) return false;
  if (!inline_bytes.empty()) {
    wqe.flags |= queue::kInline;
    wqe.length = static_cast<uint32_t>(inline_bytes.size());
    std::copy(inline_bytes.begin(), inline_bytes.end(), slot.inline_data);
  }
  wqe.sge_count = static_cast<uint8_t>(sges.size());
  uint64_t length = inline_bytes.size();
  for (const queue::Sge& sge : sges) length += sge.length;
  if (host_.tap_ != nullptr) host_.tap_->on_posted(host_, *this, wqe, length);
  *slot.wqe = wqe;
  std::copy(sges.begin(), sges.end(), slot.sges);
  sq.publish(1);
  rc.on_posted(host_.events.now());
  host_.wake();
  return true;
}

bool SimQp::post_receive(uint64_t wr_id, std::span<const queue::Sge> sges) {
  if (!rq.post(wr_id, sges)) return false;
  rc.on_posted(host_.events.now());
  return true;
}

std::optional<queue::Cqe> SimQp::poll(queue::CompletionQueue& cq) {
  std::optional<queue::Cqe> result;
  cq.poll(1, [&](const queue::Cqe& cqe) { result = cqe; });
  if (result && &cq == &send_cq && host_.tap_ != nullptr) host_.tap_->on_completed(host_, *result);
  return result;
}

Host::Host(EventQueue& event_queue, uint8_t number, Link& out, Tap* tap)
    : events(event_queue),
      mrs([this] { return key_source_ = key_source_ * 1664525 + 1013904223; }),
      number_(number),
      out_(out),
      tap_(tap),
      key_source_(0x1234567u * (number + 1u)) {
  const uint8_t bytes[4] = {192, 0, 2, number};
  address_ = wire::IpAddress::v4(bytes);
  out_.on_room([this] { wake(); });
}

SimQp& Host::add_qp(const QpConfig& config) {
  ack_waited_.push_back(false);
  return *qps_.emplace_back(std::make_unique<SimQp>(*this, config));
}

SimQp* Host::find(wire::Qpn qpn) {
  const auto found = std::find_if(qps_.begin(), qps_.end(), [&](const auto& qp) { return qp->rc.qpn() == qpn; });
  return found != qps_.end() ? found->get() : nullptr;
}

uint32_t Host::register_memory(void* base, size_t length, uint32_t access) {
  const auto address = reinterpret_cast<uint64_t>(base);
  return mrs.add({.base = static_cast<uint8_t*>(base), .iova = address, .length = length, .access = access, .pd = kPd});
}

// The order of checks is the Datapath's.
bool Host::accept(const wire::Envelope& envelope, const SimQp& qp, const wire::Packet& packet,
                  std::span<const uint8_t> ib) {
  const QpState state = qp.rc.state();
  return state != QpState::kReset && state != QpState::kInit && state != QpState::kErr &&
         envelope.source == qp.envelope.destination && envelope.destination == address_ && packet.bth.pkey == 0xffff &&
         wire::icrc_matches(envelope, ib);
}

void Host::receive(const Frame& frame) {
  if (frozen) return;
  if (tap_ != nullptr) tap_->on_frame(*this, Tap::Direction::kIn, frame, events.now());
  wire::Envelope envelope;
  std::span<const uint8_t> ib;
  if (wire::parse_frame(frame, envelope, ib) != wire::FrameError::kNone) return;
  wire::Packet packet;
  if (wire::parse_packet(ib, packet) != wire::ParseError::kNone) return;
  SimQp* const qp = find(packet.bth.dest_qp);
  if (qp == nullptr || !accept(envelope, *qp, packet, ib)) return;
  if ((envelope.traffic_class & wire::kEcnMask) == wire::kEcnCe && packet.info->operation != wire::Operation::kCnp) {
    qp->rc.on_congestion_mark(events.now());
  }
  qp->rc.on_packet(packet, events.now());
  wake();
}

void Host::wake() {
  if (std::exchange(round_wanted_, true)) return;
  events.after(kRound, [this] { round(); });
}

// One round of the engine: every QP sends what it has while the NIC takes it; an ACK waits for one round, so that the
// application's answer may go first.
void Host::round() {
  round_wanted_ = false;
  if (frozen) return;
  const Time now = events.now();
  io::TxPacket packet;
  for (size_t i = 0; i < qps_.size(); ++i) {
    const size_t which = (first_ + i) % qps_.size();
    SimQp& qp = *qps_[which];
    for (int quantum = 0; quantum < 16 && !out_.full() && qp.rc.pull(packet, now); ++quantum) transmit(qp, packet);
    if (qp.rc.ack_owed() && !out_.full() && (ack_waited_[which] || qp.rc.ack_urgent() || qp.rc.ack_deadline() <= now)) {
      if (qp.rc.pull_ack(packet, now)) transmit(qp, packet);
    }
    ack_waited_[which] = qp.rc.ack_owed();
    if (ack_waited_[which] || (!out_.full() && qp.rc.wants_to_send(now))) wake();
    arm_timer(qp);
  }
  if (!qps_.empty()) first_ = (first_ + 1) % qps_.size();
}

bool Host::transmit(SimQp& qp, const io::TxPacket& packet) {
  io::TxPacket addressed = packet;
  wire::Envelope envelope = qp.envelope;
  if (packet.header[0] == static_cast<uint8_t>(wire::Opcode::kCnp)) envelope.traffic_class = wire::kCnpTrafficClass;
  addressed.envelope = &envelope;
  Frame frame(io::frame_size(addressed));
  if (!io::build_frame_guarded(addressed, ip_id_++, frame.data())) {
    qp.rc.on_unreadable(packet, events.now());
    return false;
  }
  if (tap_ != nullptr) tap_->on_frame(*this, Tap::Direction::kOut, frame, events.now());
  out_.send(std::move(frame));
  return true;
}

void Host::arm_timer(SimQp& qp) {
  const Time deadline = qp.rc.deadline();
  if (deadline == kNever || (qp.timer_at_ <= deadline && qp.timer_at_ > events.now())) return;
  qp.timer_at_ = deadline;
  events.at(deadline, [this, &qp, deadline] {
    if (qp.timer_at_ != deadline) return;  // an earlier one was armed meanwhile
    qp.timer_at_ = kNever;
    if (frozen) return;
    qp.rc.on_timer(events.now());
    wake();
  });
}

}  // namespace uroce::simulator

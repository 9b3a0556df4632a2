// SPDX-License-Identifier: BSD-2-Clause
#include "tests/engine/transport/scripted_qp.h"

#include <algorithm>
#include <chrono>
#include <ostream>

namespace uroce::queue {

void PrintTo(const Cqe& cqe, std::ostream* out) {
  *out << "wr_id " << cqe.wr_id << " status " << int{static_cast<uint8_t>(cqe.status)} << " opcode "
       << int{static_cast<uint8_t>(cqe.opcode)} << " length " << cqe.byte_length;
}

}  // namespace uroce::queue

namespace uroce::transport::test {

uint32_t init_mask(QpType type) {
  return type == QpType::kUd ? kQpState | kQpPkeyIndex | kQpPort | kQpQkey : kToInit;
}

uint32_t rtr_mask(QpType type) {
  if (type == QpType::kUd) return kQpState | kQpPathMtu;  // the engine says what the port takes
  constexpr uint32_t kAnswers = kQpMaxDestRdAtomic | kQpMinRnrTimer;
  return type == QpType::kUc || type == QpType::kXrcInitiator ? kToRtr & ~kAnswers : kToRtr;
}

uint32_t rts_mask(QpType type) {
  if (type == QpType::kUd || type == QpType::kUc) return kQpState | kQpSqPsn;
  return type == QpType::kXrcTarget ? kQpState | kQpTimeout | kQpSqPsn : kToRts;
}

QpAttributes default_attributes() {
  QpAttributes a;
  a.access = kAllRemote;
  a.path_mtu = kMtu;
  a.rq_psn = wire::Psn(kRqPsn);
  a.sq_psn = wire::Psn(kSqPsn);
  a.dest_qpn = wire::Qpn(kPeerQpn);
  a.qkey = kQkey;
  a.port = 1;
  a.max_rd_atomic = a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.timeout = 14;  // 67.1 ms
  a.retry_count = 3;
  a.rnr_retry = 3;
  return a;
}

ScriptedQp::ScriptedQp(const Config& config)
    : sq(config.depth, config.max_sge, config.max_inline),
      rq(config.depth, config.max_sge),
      send_cq(config.cq_capacity, nullptr),
      recv_cq(config.cq_capacity, nullptr),
      mrs([this] { return key_source_ = key_source_ * 1664525 + 1013904223; }),
      type(config.type),
      transport_({.type = config.type,
                  .qpn = wire::Qpn(config.qpn),
                  .pd = kPd,
                  .signal_all = config.signal_all,
                  .rq_shared = config.rq_shared,
                  .rq_pd = config.rq_pd,
                  .patience = config.patience,
                  .mrs = mrs,
                  .sq = sq,
                  .rq = rq,
                  .send_cq = send_cq,
                  .recv_cq = recv_cq,
                  .events = *this,
                  .counters = counters,
                  .receive_sges = receive_sges_,
                  .xrc_srqs = &srqs,
                  .xrcd = config.xrcd}),
      qp(*transport_) {
  qp.obey(&congestion);
}

ScriptedQp::~ScriptedQp() = default;

int ScriptedQp::modify(QpState to, uint32_t mask, QpAttributes attributes) {
  attributes.state = to;
  const uint32_t depth = std::min<uint32_t>(attributes.max_dest_rd_atomic, kMaxRdAtomic);
  if ((mask & kQpMaxDestRdAtomic) && depth > qp.answers_remembered()) {
    std::vector<ReplayEntry> room(depth);
    qp.remember_answers_in(room);
    answers_.swap(room);
  }
  return qp.modify(attributes, mask, now);
}

void ScriptedQp::to_init(const QpAttributes& a) {
  ASSERT_EQ(modify(QpState::kInit, init_mask(type), a), 0);
}

void ScriptedQp::to_rtr(const QpAttributes& a) {
  to_init(a);
  ASSERT_EQ(modify(QpState::kRtr, rtr_mask(type), a), 0);
}

void ScriptedQp::to_rts(const QpAttributes& a) {
  to_rtr(a);
  ASSERT_EQ(modify(QpState::kRts, rts_mask(type), a), 0);
}

Buffer ScriptedQp::make_buffer(size_t size, uint32_t access, uint32_t seed) {
  Buffer buffer{pattern(size, seed)};
  add(buffer, {.access = access});
  return buffer;
}

void ScriptedQp::add(Buffer& buffer, memory::MemoryRegion region) {
  region.base = buffer.bytes.data();
  region.iova = buffer.iova;
  region.length = buffer.bytes.size();
  if (region.pd == 0) region.pd = kPd;
  buffer.key = mrs.add(region);
}

void ScriptedQp::add_window(Buffer& buffer, uint32_t pd) {
  add(buffer, {.access = memory::kLocalWrite | memory::kMwBind, .pd = pd});
  const uint32_t window = mrs.add_window(memory::WindowType::kType2, pd);
  ASSERT_TRUE(mrs.bind({.window_key = window,
                        .new_key = window ^ 1,
                        .region_key = buffer.key,
                        .address = buffer.iova,
                        .length = buffer.bytes.size(),
                        .access = kAllRemote,
                        .pd = pd,
                        .qpn = kQpn}));
  buffer.key = window ^ 1;
}

void ScriptedQp::post(queue::SendWqe wqe, const std::vector<queue::Sge>& sges) {
  queue::SendQueue::Slot slot;
  ASSERT_TRUE(sq.reserve(0, slot));
  wqe.sge_count = static_cast<uint8_t>(sges.size());
  *slot.wqe = wqe;
  std::copy(sges.begin(), sges.end(), slot.sges);
  sq.publish(1);
  qp.on_posted(now);
}

void ScriptedQp::post_inline(queue::SendWqe wqe, const Bytes& bytes) {
  queue::SendQueue::Slot slot;
  ASSERT_TRUE(sq.reserve(0, slot));
  wqe.flags |= queue::kInline;
  wqe.length = static_cast<uint32_t>(bytes.size());
  *slot.wqe = wqe;
  std::copy(bytes.begin(), bytes.end(), slot.inline_data);
  sq.publish(1);
  qp.on_posted(now);
}

void ScriptedQp::post_receive(uint64_t wr_id, const std::vector<queue::Sge>& sges) {
  ASSERT_TRUE(rq.post(wr_id, sges));
  qp.on_posted(now);
}

void ScriptedQp::receive(const PeerPacket& from_peer) {
  const Bytes bytes = from_peer.bytes();
  wire::Packet packet;
  ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
  packet.envelope = &envelope;
  qp.on_packet(packet, now);
}

std::vector<SentPacket> ScriptedQp::pull(size_t count) {
  std::vector<SentPacket> sent;
  io::TxPacket packet;
  for (bool exhausted = qp.exhausted(); sent.size() < count && qp.pull(packet, now); exhausted = qp.exhausted()) {
    EXPECT_FALSE(exhausted) << "it had one more";
    sent.push_back(as_sent(packet));
    if (packet.completes) qp.on_taken(packet, now);
  }
  return sent;
}

std::vector<io::TxPacket> ScriptedQp::pull_waiting(size_t count) {
  std::vector<io::TxPacket> waiting;
  io::TxPacket packet;
  while (waiting.size() < count && qp.pull(packet, now)) waiting.push_back(packet);
  return waiting;
}

std::vector<SentPacket> ScriptedQp::pull_ack() {
  io::TxPacket packet;
  if (!qp.pull_ack(packet, now)) return {};
  return {as_sent(packet)};
}

std::vector<SentPacket> ScriptedQp::drain() {
  std::vector<SentPacket> sent = pull();
  for (SentPacket& last : pull_ack()) sent.push_back(std::move(last));
  return sent;
}

void ScriptedQp::expire() {
  ASSERT_NE(qp.deadline(), kNever);
  now = std::max(now, qp.deadline());
  qp.on_timer(now);
}

std::vector<SentPacket> ScriptedQp::run_until(Time end) {
  std::vector<SentPacket> sent = pull();
  while (qp.deadline() <= end) {
    expire();
    for (SentPacket& packet : pull()) sent.push_back(std::move(packet));
  }
  now = end;
  return sent;
}

std::vector<queue::Cqe> ScriptedQp::take(queue::CompletionQueue& cq) {
  std::vector<queue::Cqe> cqes;
  cq.poll(UINT32_MAX, [&](const queue::Cqe& cqe) { cqes.push_back(cqe); });
  return cqes;
}

SentPacket ScriptedQp::as_sent(const io::TxPacket& packet) const {
  Bytes ib(packet.header.begin(), packet.header.begin() + packet.header_size);
  for (uint8_t i = 0; i < packet.fragment_count; ++i) {
    ib.insert(ib.end(), packet.fragments[i].data, packet.fragments[i].data + packet.fragments[i].size);
  }
  ib.resize(ib.size() + packet.pad + wire::kIcrcSize);
  EXPECT_EQ(ib.size() + 8, packet.udp_length()) << "payload_size is not the sum of the fragments";
  SentPacket sent;
  EXPECT_EQ(wire::parse_packet(ib, sent.headers), wire::ParseError::kNone);
  const wire::Bth& bth = sent.headers.bth;
  EXPECT_TRUE(type == QpType::kUd || bth.dest_qp == wire::Qpn(kPeerQpn));
  EXPECT_EQ(bth.pkey, 0xffff);
  EXPECT_TRUE(bth.mig_req);
  EXPECT_FALSE(bth.fecn || bth.becn);
  EXPECT_EQ(bth.pad, packet.pad);
  sent.payload.assign(sent.headers.payload.begin(), sent.headers.payload.end());
  sent.headers.payload = {};
  sent.reason = packet.reason;
  return sent;
}

queue::SendWqe work(queue::WrOpcode opcode, uint64_t wr_id, uint8_t flags) {
  queue::SendWqe wqe{};
  wqe.opcode = opcode;
  wqe.wr_id = wr_id;
  wqe.flags = flags;
  return wqe;
}

queue::SendWqe rdma(queue::WrOpcode opcode, uint64_t wr_id, uint64_t va, uint32_t rkey, uint8_t flags) {
  queue::SendWqe wqe = work(opcode, wr_id, flags);
  wqe.remote_address = va;
  wqe.rkey = rkey;
  return wqe;
}

queue::SendWqe datagram(uint64_t wr_id, uint8_t flags, queue::WrOpcode opcode) {
  queue::SendWqe wqe = work(opcode, wr_id, flags);
  wqe.ud = {.address_handle = kAddressHandle, .remote_qpn = kPeerQpn, .remote_qkey = kQkey};
  return wqe;
}

testing::Matcher<const queue::Cqe&> IsCompletion(uint64_t wr_id, queue::WcStatus status) {
  using testing::Field;
  return testing::AllOf(Field("wr_id", &queue::Cqe::wr_id, wr_id), Field("status", &queue::Cqe::status, status),
                        Field("qpn", &queue::Cqe::qpn, kQpn));
}

}  // namespace uroce::transport::test

// One QP of any type with everything around it, driven by a script: the test posts work, hands in packets of an
// imagined peer, moves the time, and looks at the packets, completions and events that come out.
#pragma once

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/transport/any_qp.h"
#include "tests/engine/transport/packet_matchers.h"
#include "tests/engine/transport/peer_packet.h"

namespace uroce::queue {
inline void PrintTo(const Cqe& cqe, std::ostream* out) {
  *out << "wr_id " << cqe.wr_id << " status " << int{static_cast<uint8_t>(cqe.status)} << " opcode "
       << int{static_cast<uint8_t>(cqe.opcode)} << " length " << cqe.byte_length;
}
}  // namespace uroce::queue

namespace uroce::transport::test {

inline constexpr uint32_t kPd = 7;
inline constexpr uint32_t kQpn = 0x101;
inline constexpr uint32_t kPeerQpn = 0x202;
inline constexpr uint32_t kMtu = 256;
inline constexpr uint32_t kSqPsn = 100;   // the QP's first request
inline constexpr uint32_t kRqPsn = 5000;  // the peer's first request
inline constexpr uint64_t kIova = 0x7000'0000'1000;
inline constexpr uint32_t kAllRemote = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;

inline constexpr uint32_t kToInit = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
inline constexpr uint32_t kToRtr =
    kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
inline constexpr uint32_t kToRts = kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;

inline constexpr uint32_t kQkey = 0x1234;
inline constexpr uint32_t kAddressHandle = 77;

// What each type wants to be told on its way to RTR and RTS (wire.md "State transitions").
inline uint32_t init_mask(QpType type) {
  return type == QpType::kUd ? kQpState | kQpPkeyIndex | kQpPort | kQpQkey : kToInit;
}
inline uint32_t rtr_mask(QpType type) {
  if (type == QpType::kUd) return kQpState | kQpPathMtu;  // the engine says what the port takes
  constexpr uint32_t kAnswers = kQpMaxDestRdAtomic | kQpMinRnrTimer;
  return type == QpType::kUc || type == QpType::kXrcInitiator ? kToRtr & ~kAnswers : kToRtr;
}
inline uint32_t rts_mask(QpType type) {
  if (type == QpType::kUd || type == QpType::kUc) return kQpState | kQpSqPsn;
  return type == QpType::kXrcTarget ? kQpState | kQpTimeout | kQpSqPsn : kToRts;
}

// A memory region: its bytes, and how work requests and the peer name it. Not at the address that it has in memory.
struct Buffer {
  Bytes bytes;
  uint64_t iova = kIova;
  uint32_t key = 0;

  queue::Sge sge(uint32_t offset, uint32_t size) const { return {iova + offset, size, key}; }
};

inline QpAttributes default_attributes() {
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

// The shared receive queues of XRC domains, by domain and number.
class ScriptedSrqs final : public XrcSrqs {
 public:
  const ReceiveTarget* find(uint32_t xrcd, uint32_t srqn) const override {
    const auto it = targets.find({xrcd, srqn});
    return it == targets.end() ? nullptr : &it->second;
  }
  std::map<std::pair<uint32_t, uint32_t>, ReceiveTarget> targets;
};

class ScriptedQp final : public QpEvents {
 public:
  struct Config {
    QpType type = QpType::kRc;
    uint32_t depth = 256;
    uint32_t max_sge = 4;
    uint32_t max_inline = 128;
    uint32_t cq_capacity = 1024;
    bool signal_all = false;
    bool rq_shared = false;
    std::optional<uint32_t> rq_pd = std::nullopt;  // of a shared receive queue
    uint32_t xrcd = 0;
  };

  // clang 14 does not take a default argument of a nested type with member initialisers.
  ScriptedQp() : ScriptedQp(Config{}) {}
  explicit ScriptedQp(const Config& config)
      : sq(config.depth, config.max_sge, config.max_inline),
        rq(config.depth, config.max_sge),
        send_cq(config.cq_capacity, nullptr),
        recv_cq(config.cq_capacity, nullptr),
        mrs([this] { return key_source_ = key_source_ * 1664525 + 1013904223; }),
        type(config.type),
        transport_({.type = config.type,
                    .qpn = wire::Qpn(kQpn),
                    .pd = kPd,
                    .signal_all = config.signal_all,
                    .rq_shared = config.rq_shared,
                    .rq_pd = config.rq_pd,
                    .mrs = mrs,
                    .sq = sq,
                    .rq = rq,
                    .send_cq = send_cq,
                    .recv_cq = recv_cq,
                    .events = *this,
                    .counters = counters,
                    .xrc_srqs = &srqs,
                    .xrcd = config.xrcd}),
        qp(*transport_) {}
  virtual ~ScriptedQp() = default;

  // --- state ---------------------------------------------------------------------------------------------------------
  int modify(QpState to, uint32_t mask, QpAttributes attributes = default_attributes()) {
    attributes.state = to;
    return qp.modify(attributes, mask, now);
  }
  void to_init(const QpAttributes& a = default_attributes()) {
    ASSERT_EQ(modify(QpState::kInit, init_mask(type), a), 0);
  }
  void to_rtr(const QpAttributes& a = default_attributes()) {
    to_init(a);
    ASSERT_EQ(modify(QpState::kRtr, rtr_mask(type), a), 0);
  }
  void to_rts(const QpAttributes& a = default_attributes()) {
    to_rtr(a);
    ASSERT_EQ(modify(QpState::kRts, rts_mask(type), a), 0);
  }

  // --- memory --------------------------------------------------------------------------------------------------------
  Buffer make_buffer(size_t size, uint32_t access = memory::kLocalWrite | kAllRemote, uint32_t seed = 3) {
    Buffer buffer{pattern(size, seed)};
    add(buffer, {.access = access});
    return buffer;
  }
  // `region` gives what differs from an ordinary region: access, pd if not 0.
  void add(Buffer& buffer, memory::MemoryRegion region) {
    region.base = buffer.bytes.data();
    region.iova = buffer.iova;
    region.length = buffer.bytes.size();
    if (region.pd == 0) region.pd = kPd;
    buffer.key = mrs.add(region);
  }
  // What the peer may invalidate: a type 2 window for all of `buffer`, bound on this QP; its key becomes the buffer's.
  void add_window(Buffer& buffer, uint32_t pd = kPd) {
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

  // --- work ----------------------------------------------------------------------------------------------------------
  void post(queue::SendWqe wqe, const std::vector<queue::Sge>& sges = {}) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(sq.reserve(0, slot));
    wqe.sge_count = static_cast<uint8_t>(sges.size());
    *slot.wqe = wqe;
    std::copy(sges.begin(), sges.end(), slot.sges);
    sq.publish(1);
    qp.on_posted(now);
  }
  void post_inline(queue::SendWqe wqe, const Bytes& bytes) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(sq.reserve(0, slot));
    wqe.flags |= queue::kInline;
    wqe.length = static_cast<uint32_t>(bytes.size());
    *slot.wqe = wqe;
    std::copy(bytes.begin(), bytes.end(), slot.inline_data);
    sq.publish(1);
    qp.on_posted(now);
  }
  void post_receive(uint64_t wr_id, const std::vector<queue::Sge>& sges = {}) {
    ASSERT_TRUE(rq.post(wr_id, sges));
    qp.on_posted(now);
  }

  // --- packets -------------------------------------------------------------------------------------------------------
  void receive(const PeerPacket& from_peer) {
    const Bytes bytes = from_peer.bytes();
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
    packet.envelope = &envelope;
    qp.on_packet(packet, now);
  }
  // All that the QP gives out now, acknowledgements not counted. Its bytes are made at once.
  std::vector<SentPacket> pull() { return pull(SIZE_MAX); }
  // At most `count` of them.
  std::vector<SentPacket> pull(size_t count) {
    std::vector<SentPacket> sent;
    wire::TxPacket packet;
    while (sent.size() < count && qp.pull(packet, now)) {
      sent.push_back(as_sent(packet));
      if (packet.completes) qp.on_taken(packet, now);
    }
    return sent;
  }
  // The same, but their bytes have still to be made: the caller says when, with qp.on_taken() or on_unreadable().
  std::vector<wire::TxPacket> pull_waiting(size_t count = SIZE_MAX) {
    std::vector<wire::TxPacket> waiting;
    wire::TxPacket packet;
    while (waiting.size() < count && qp.pull(packet, now)) waiting.push_back(packet);
    return waiting;
  }
  // The acknowledgement, if one may go now. Does not wait for its deadline.
  std::vector<SentPacket> pull_ack() {
    wire::TxPacket packet;
    if (!qp.pull_ack(packet, now)) return {};
    return {as_sent(packet)};
  }
  // Everything: responses, requests, acknowledgement.
  std::vector<SentPacket> drain() {
    std::vector<SentPacket> sent = pull();
    for (SentPacket& last : pull_ack()) sent.push_back(std::move(last));
    return sent;
  }

  // --- time ----------------------------------------------------------------------------------------------------------
  void advance(Duration time) { now += time; }
  // Moves on to the deadline, which must exist, and tells the QP.
  void expire() {
    ASSERT_NE(qp.deadline(), kNever);
    now = std::max(now, qp.deadline());
    qp.on_timer(now);
  }
  // As the engine does it: calls on_timer() at every deadline until `end`, gives the packets sent meanwhile.
  std::vector<SentPacket> run_until(Time end) {
    std::vector<SentPacket> sent = pull();
    while (qp.deadline() <= end) {
      expire();
      for (SentPacket& packet : pull()) sent.push_back(std::move(packet));
    }
    now = end;
    return sent;
  }

  // --- results -------------------------------------------------------------------------------------------------------
  static std::vector<queue::Cqe> take(queue::CompletionQueue& cq) {
    std::vector<queue::Cqe> cqes;
    cq.poll(UINT32_MAX, [&](const queue::Cqe& cqe) { cqes.push_back(cqe); });
    return cqes;
  }
  std::vector<queue::Cqe> sends() { return take(send_cq); }
  std::vector<queue::Cqe> receives() { return take(recv_cq); }
  uint64_t count(Counter counter) const { return counters.get(counter); }

  void on_event(AsyncEvent event) override { events.push_back(event); }
  void on_srq_limit(queue::ReceiveQueue&) override { events.push_back(AsyncEvent::kSrqLimitReached); }
  void on_cq_overrun(queue::CompletionQueue&) override { events.push_back(AsyncEvent::kCqError); }

  Time now{std::chrono::seconds(1)};
  queue::SendQueue sq;
  queue::ReceiveQueue rq;
  queue::CompletionQueue send_cq;
  queue::CompletionQueue recv_cq;
  memory::MrTable mrs;
  Counters counters;
  std::vector<AsyncEvent> events;
  ScriptedSrqs srqs;
  wire::Envelope envelope;  // of what the peer sends
  const QpType type;

 private:
  const AnyQp transport_;

 public:
  TransportQp& qp;

 private:
  SentPacket as_sent(const wire::TxPacket& packet) const {
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

  uint32_t key_source_ = 0x1234567;
};

// Work requests as an application writes them.
inline queue::SendWqe work(queue::WrOpcode opcode, uint64_t wr_id, uint8_t flags = queue::kSignaled) {
  queue::SendWqe wqe{};
  wqe.opcode = opcode;
  wqe.wr_id = wr_id;
  wqe.flags = flags;
  return wqe;
}
inline queue::SendWqe rdma(queue::WrOpcode opcode, uint64_t wr_id, uint64_t va, uint32_t rkey,
                           uint8_t flags = queue::kSignaled) {
  queue::SendWqe wqe = work(opcode, wr_id, flags);
  wqe.remote_address = va;
  wqe.rkey = rkey;
  return wqe;
}

inline queue::SendWqe datagram(uint64_t wr_id, uint8_t flags = queue::kSignaled,
                               queue::WrOpcode opcode = queue::WrOpcode::kSend) {
  queue::SendWqe wqe = work(opcode, wr_id, flags);
  wqe.ud = {.address_handle = kAddressHandle, .remote_qpn = kPeerQpn, .remote_qkey = kQkey};
  return wqe;
}

MATCHER_P2(IsCompletion, wr_id, status, "wr_id " + testing::PrintToString(wr_id) + " with another status or id") {
  return arg.wr_id == static_cast<uint64_t>(wr_id) && arg.status == status && arg.qpn == kQpn;
}

}  // namespace uroce::transport::test

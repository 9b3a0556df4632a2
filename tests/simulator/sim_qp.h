// A host with one RC QP in the simulator: the real transport with real queues and memory regions, driven by virtual
// time. Does what the engine does around a QP, and nothing else.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "engine/transport/rc_qp.h"
#include "tests/simulator/event_queue.h"
#include "tests/simulator/link.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace uroce::simulator {

struct SimQpConfig {
  uint32_t qpn = 0x101;
  uint32_t depth = 64;
  uint32_t max_sge = 4;
  uint32_t max_inline = 128;
  uint32_t cq_capacity = 4096;
  bool signal_all = false;
};

class SimQp final : public transport::QpEvents {
 public:
  SimQp(EventQueue& events, Link& out, Link& in, const SimQpConfig& config = {},
        queue::CompletionNotifier* send_notifier = nullptr)
      : sq(config.depth, config.max_sge, config.max_inline),
        rq(config.depth, config.max_sge),
        send_cq(config.cq_capacity, send_notifier),
        recv_cq(config.cq_capacity, nullptr),
        mrs([this] { return key_source_ = key_source_ * 1664525 + 1013904223; }),
        qp({.qpn = wire::Qpn(config.qpn),
            .pd = kPd,
            .signal_all = config.signal_all,
            .mrs = mrs,
            .sq = sq,
            .rq = rq,
            .send_cq = send_cq,
            .recv_cq = recv_cq,
            .events = *this,
            .counters = counters}),
        events_(events),
        out_(out) {
    in.connect([this](const Link::Bytes& ib) { receive(ib); });
    envelope_.source = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data());
    envelope_.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 2}.data());
  }
  virtual ~SimQp() = default;

  static constexpr uint32_t kPd = 7;

  // RESET to RTS towards `peer`, with the attributes given.
  void connect(uint32_t peer_qpn, transport::QpAttributes a) {
    using namespace transport;
    a.dest_qpn = wire::Qpn(peer_qpn);
    a.port = 1;
    a.state = QpState::kInit;
    ASSERT_EQ(modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
    a.state = QpState::kRtr;
    ASSERT_EQ(modify(a, kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                            kQpMinRnrTimer),
              0);
    a.state = QpState::kRts;
    ASSERT_EQ(modify(a, kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic), 0);
  }
  int modify(const transport::QpAttributes& a, uint32_t mask) {
    const int error = qp.modify(a, mask, events_.now());
    pump();
    return error;
  }

  // Posts one send request; false when the queue is full. `inline_bytes`: copied instead of SGEs when not empty.
  bool post(queue::SendWqe wqe, std::vector<queue::Sge> sges, std::vector<uint8_t> inline_bytes = {}) {
    queue::SendQueue::Slot slot;
    if (!sq.reserve(0, slot)) return false;
    if (!inline_bytes.empty()) {
      wqe.flags |= queue::kInline;
      wqe.length = static_cast<uint32_t>(inline_bytes.size());
      std::copy(inline_bytes.begin(), inline_bytes.end(), slot.inline_data);
    }
    wqe.sge_count = static_cast<uint8_t>(sges.size());
    *slot.wqe = wqe;
    std::copy(sges.begin(), sges.end(), slot.sges);
    sq.publish(1);
    qp.on_posted(events_.now());
    pump();
    return true;
  }
  bool post_receive(uint64_t wr_id, std::vector<queue::Sge> sges) {
    if (!rq.post(wr_id, sges)) return false;
    qp.on_posted(events_.now());
    return true;
  }

  uint32_t register_memory(void* base, size_t length, uint32_t access) {
    const auto address = reinterpret_cast<uint64_t>(base);
    return mrs.add(
        {.base = static_cast<uint8_t*>(base), .iova = address, .length = length, .access = access, .pd = kPd});
  }

  std::optional<queue::Cqe> poll(queue::CompletionQueue& cq) {
    std::optional<queue::Cqe> result;
    cq.poll(1, [&](const queue::Cqe& cqe) { result = cqe; });
    return result;
  }

  // Sends all that is ready, delays ACKs to their deadline (the engine: to its next round), and arms the timer.
  void pump() {
    wire::TxPacket packet;
    while (qp.pull(packet, events_.now())) transmit(packet);
    if (qp.ack_owed()) {
      const Time due = qp.ack_urgent() ? events_.now() : qp.ack_deadline();
      if (due <= events_.now()) {
        if (qp.pull_ack(packet, events_.now())) transmit(packet);
      } else {
        events_.at(due, [this] { pump(); });
      }
    }
    const Time deadline = qp.deadline();
    if (deadline != kNever && (deadline < timer_at_ || timer_at_ <= events_.now())) {
      timer_at_ = deadline;
      events_.at(deadline, [this, deadline] {
        if (timer_at_ != deadline) return;  // an earlier one was armed meanwhile
        timer_at_ = kNever;
        qp.on_timer(events_.now());
        pump();
      });
    }
  }

  void on_event(transport::AsyncEvent event) override { async_events.push_back(event); }
  void on_cq_overrun(queue::CompletionQueue&) override { async_events.push_back(transport::AsyncEvent::kCqError); }

  void receive(const Link::Bytes& ib) {
    wire::Packet packet;
    wire::Envelope from = envelope_;
    std::swap(from.source, from.destination);
    if (wire::parse_packet(ib, packet) != wire::ParseError::kNone || packet.bth.dest_qp != qp.qpn() ||
        !wire::icrc_matches(from, ib)) {
      ++dropped;
      return;
    }
    qp.on_packet(packet, events_.now());
    pump();
  }
  void swap_addresses() { std::swap(envelope_.source, envelope_.destination); }

  queue::SendQueue sq;
  queue::ReceiveQueue rq;
  queue::CompletionQueue send_cq;
  queue::CompletionQueue recv_cq;
  memory::MrTable mrs;
  Counters counters;
  transport::RcQp qp;
  std::vector<transport::AsyncEvent> async_events;
  uint64_t dropped = 0;

 private:
  void transmit(const wire::TxPacket& packet) {
    Link::Bytes ib(packet.header.begin(), packet.header.begin() + packet.header_size);
    for (uint8_t i = 0; i < packet.fragment_count; ++i) {
      ib.insert(ib.end(), packet.fragments[i].data, packet.fragments[i].data + packet.fragments[i].size);
    }
    ib.insert(ib.end(), packet.pad, 0);
    const uint32_t icrc = wire::icrc(envelope_, ib);
    for (int i = 0; i < 4; ++i) ib.push_back(static_cast<uint8_t>(icrc >> 8 * i));
    EXPECT_EQ(ib.size() + 8, packet.udp_length());
    out_.send(std::move(ib));
  }

  EventQueue& events_;
  Link& out_;
  wire::Envelope envelope_;
  Time timer_at_ = kNever;
  uint32_t key_source_ = 0x1234567;
};

// Two connected hosts.
struct Pair {
  explicit Pair(uint64_t seed, LinkConfig link = {}, SimQpConfig config = {})
      : random(seed), forward(events, random, link), backward(events, random, link) {
    config.qpn = 0x101;
    a = std::make_unique<SimQp>(events, forward, backward, config);
    config.qpn = 0x202;
    b = std::make_unique<SimQp>(events, backward, forward, config);
    b->swap_addresses();
  }
  static transport::QpAttributes defaults() {
    transport::QpAttributes a;
    a.access = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;
    a.path_mtu = 1024;
    a.max_rd_atomic = a.max_dest_rd_atomic = 16;
    a.min_rnr_timer = 12;  // 0.64 ms
    a.timeout = 14;        // 67 ms
    a.retry_count = 7;
    a.rnr_retry = 7;
    return a;
  }
  // psn_a: first PSN of a's requests; psn_b: of b's.
  void connect(transport::QpAttributes attr = defaults(), uint32_t psn_a = 0x111111, uint32_t psn_b = 0x222222) {
    attr.sq_psn = wire::Psn(psn_a);
    attr.rq_psn = wire::Psn(psn_b);
    a->connect(b->qp.qpn().value(), attr);
    std::swap(attr.sq_psn, attr.rq_psn);
    b->connect(a->qp.qpn().value(), attr);
  }

  EventQueue events;
  std::mt19937_64 random;
  Link forward;   // a to b
  Link backward;  // b to a
  std::unique_ptr<SimQp> a, b;
};

}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// One QP of UC, UD or XRC alone, its peer and the application that owns it both out of their minds: packets of any
// headers, work requests of any fields, packets whose bytes are made late, in any order or never, states that change,
// memory and shared receive queues that go away. Input: a byte for each choice in the constructor, then operations.
//
// Checked: memory that nobody may write is untouched; every request completes once, no matter what, and in order of
// posting; in ERR the queues are empty; packets that are given out can be parsed.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory/memory_access.h"
#include "tests/engine/transport/any_qp.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/hostile_packet.h"

namespace uroce::fuzz {

namespace {

using transport::QpState;
using transport::QpType;

constexpr uint32_t kPd = 7, kXrcd = 3, kPathMtu = 256, kDepth = 8;

wire::Transport transport_of(QpType type) {
  switch (type) {
    case QpType::kUc:
      return wire::Transport::kUc;
    case QpType::kUd:
      return wire::Transport::kUd;
    default:
      return wire::Transport::kXrc;
  }
}

class Session final : public transport::QpEvents, public transport::XrcSrqs {
 public:
  explicit Session(Input& input)
      : input_(input),
        type_(input.one_of({QpType::kUc, QpType::kUd, QpType::kXrcTarget, QpType::kXrcInitiator})),
        shared_(input.below(4) == 0 && type_ != QpType::kXrcInitiator),
        sq_(kDepth, 4, 64),
        rq_(kDepth, 4),
        send_cq_(4096, nullptr),
        recv_cq_(4096, nullptr),
        srq_cq_(4096, nullptr),
        srq_(std::make_unique<queue::ReceiveQueue>(kDepth, 4)),
        mrs_([this] { return key_ = key_ * 1664525 + 1013904223; }),
        arena_(mrs_, kPd),
        target_{srq_.get(), &srq_cq_, kPd, kPd},
        qp_({.type = type_,
             .qpn = wire::Qpn(0x101),
             .pd = kPd,
             .signal_all = true,
             .rq_shared = shared_,
             .mrs = mrs_,
             .sq = sq_,
             .rq = rq_,
             .send_cq = send_cq_,
             .recv_cq = recv_cq_,
             .events = *this,
             .counters = counters_,
             .receive_sges = receive_sges_,
             .xrc_srqs = this,
             .xrcd = kXrcd}) {
    envelope_.source = envelope_.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{10, 0, 0, 1}.data());
    qp_->remember_answers_in(answers_);
    connect();
  }
  virtual ~Session() = default;

  void run() {
    constexpr int kMaxOperations = 400;
    for (int i = 0; i < kMaxOperations && !input_.empty(); ++i) {
      operate();
      collect();
    }
    end();
  }

  void on_event(transport::AsyncEvent) override {}
  void on_cq_overrun(queue::CompletionQueue&) override { check(false, "the completion queues are large enough"); }
  void on_srq_limit(queue::ReceiveQueue&) override {}
  const transport::ReceiveTarget* find(uint32_t xrcd, uint32_t srqn) const override {
    return xrcd == kXrcd && srqn == kSrqn && srq_ ? &target_ : nullptr;
  }

 private:
  int modify(QpState state, uint32_t mask) {
    transport::QpAttributes a;
    a.state = state;
    a.access = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;
    a.path_mtu = kPathMtu;
    a.qkey = kQkey;
    a.dest_qpn = wire::Qpn(0x202);
    a.port = 1;
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.timeout = 8;
    a.retry_count = a.rnr_retry = 7;
    return qp_->modify(a, mask | transport::kQpState, now_);
  }
  void connect() {
    using namespace transport;
    const bool ud = type_ == QpType::kUd, answers = type_ == QpType::kXrcTarget, asks = type_ == QpType::kXrcInitiator;
    const uint32_t common = kQpPkeyIndex | kQpPort;
    modify(QpState::kInit, common | (ud ? kQpQkey : kQpAccessFlags));
    modify(QpState::kRtr, ud ? uint32_t{kQpPathMtu}
                             : kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                                   (answers ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0));
    modify(QpState::kRts,
           kQpSqPsn | (answers || asks ? kQpTimeout : 0) | (asks ? kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic : 0));
    check(qp_->state() == QpState::kRts, "a QP in RESET can be connected");
    next_psn_ = wire::Psn{};
  }

  void operate() {
    switch (input_.below(16)) {
      case 0:
      case 1:
      case 2:
        return post_send();
      case 3:
      case 4:
        return post_receive();
      case 5:
      case 6:
      case 7:
      case 8:
        return receive();
      case 9:
      case 10:
        return pull();
      case 11:
        return end_one();
      case 12:
        now_ = std::max(now_ + std::chrono::microseconds(input_.word()), now_);
        return qp_->on_timer(now_);
      case 13:
        return change_memory();
      case 14:
        return change_state();
      default:
        if (input_.below(8) == 0) destroy_srq();
        return qp_->on_congestion_mark(now_);
    }
  }

  void post_send() {
    const QpState state = qp_->state();
    queue::SendQueue::Slot slot;
    if (state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr || !sq_.reserve(0, slot)) return;
    queue::SendWqe wqe{};
    wqe.wr_id = ++posted_;
    wqe.opcode =
        input_.below(3) != 0
            ? input_.one_of({queue::WrOpcode::kSend, queue::WrOpcode::kRdmaWrite, queue::WrOpcode::kSendWithImmediate})
            : static_cast<queue::WrOpcode>(input_.below(17));
    wqe.flags = input_.byte();
    wqe.length = input_.byte();
    wqe.sge_count = static_cast<uint8_t>(input_.below(6));
    for (uint32_t i = 0; i < std::min<uint32_t>(wqe.sge_count, 4); ++i) slot.sges[i] = arena_.range(input_, 600);
    wqe.ud = {input_.byte(), input_.byte(), input_.dword()};
    if (type_ == QpType::kXrcInitiator) wqe.set_xrc_srqn(input_.dword());
    *slot.wqe = wqe;
    sq_.publish(1);
    qp_->on_posted(now_);
  }

  void post_receive() {
    std::array<queue::Sge, 4> sges;
    const uint32_t count = input_.below(5);
    for (uint32_t i = 0; i < count; ++i) sges[i] = arena_.range(input_, 900);
    queue::ReceiveQueue* const to = type_ == QpType::kXrcTarget ? srq_.get() : &rq_;
    if (to == nullptr || qp_->state() == QpState::kReset) return;
    if (to->post(0, std::span(sges).first(count))) ++receives_posted_;
    qp_->on_posted(now_);
  }

  void receive() {
    const wire::Psn psn = input_.below(4) != 0 ? next_psn_ : wire::Psn(input_.word());
    const std::vector<uint8_t> bytes = hostile_packet(input_, arena_, kPathMtu, psn, transport_of(type_));
    wire::Packet packet;
    if (wire::parse_packet(bytes, packet) != wire::ParseError::kNone) return;
    packet.envelope = &envelope_;
    if (packet.info->request) next_psn_ = psn + 1;
    qp_->on_packet(packet, now_);
  }

  // Gives out packets, and makes the bytes of some.
  void pull() {
    for (uint32_t count = 1 + input_.below(8); count > 0; --count) {
      io::TxPacket packet;
      qp_->next_address_handle();
      if (!qp_->pull(packet, now_) && !qp_->pull_ack(packet, now_)) return;
      std::vector<uint8_t> ib(packet.header.begin(), packet.header.begin() + packet.header_size);
      ib.resize(ib.size() + packet.payload_size + packet.pad + wire::kIcrcSize);
      wire::Packet parsed;
      check(wire::parse_packet(ib, parsed) == wire::ParseError::kNone, "packets that are sent can be parsed");
      waiting_.push_back(packet);
    }
  }

  // The bytes of some packet are made, or cannot be.
  void end_one() {
    if (waiting_.empty()) return;
    const auto which = waiting_.begin() + static_cast<ptrdiff_t>(input_.below(4) % waiting_.size());
    const io::TxPacket packet = *which;
    waiting_.erase(which);
    finish(packet, input_.below(4) == 0);
  }
  void finish(const io::TxPacket& packet, bool unreadable) {
    if (unreadable && packet.payload_size > 0) {
      qp_->on_unreadable(packet, now_);
    } else if (packet.completes) {
      qp_->on_taken(packet, now_);
    }
  }

  void change_memory() {
    const auto region = Arena::Region{static_cast<uint8_t>(input_.flag())};
    switch (input_.below(3)) {
      case 0:
        return arena_.remove(region);
      case 1:
        return arena_.add(region);
      default:
        return arena_.protect(region, input_.byte());
    }
  }

  void change_state() {
    switch (input_.below(6)) {
      case 0:
        modify(QpState::kSqd, 0);
        return;
      case 1:
      case 2:
        modify(QpState::kRts, 0);
        return;
      case 3:
        modify(QpState::kErr, 0);
        return;
      default:
        collect();
        modify(QpState::kReset, 0);
        posted_ = completed_ = 0;
        receives_lost_ = true;  // without completions
        connect();
    }
  }

  void destroy_srq() {
    if (!srq_ || type_ != QpType::kXrcTarget) return;
    qp_->on_srq_destroyed(*srq_);
    receives_lost_ = true;
    srq_.reset();
  }

  void collect() {
    send_cq_.poll(UINT32_MAX, [this](const queue::Cqe& cqe) {
      check(cqe.wr_id == ++completed_, "send requests complete once each and in order");
      check(completed_ <= posted_, "nothing completes that was not posted");
    });
    for (queue::CompletionQueue* cq : {&recv_cq_, &srq_cq_}) {
      receives_completed_ += cq->poll(UINT32_MAX, [](const queue::Cqe&) {});
    }
    check(receives_completed_ <= receives_posted_, "no more receives complete than were posted");
  }

  void end() {
    // Whatever still waits for its bytes; then nothing may be missing.
    for (const Arena::Region region : {Arena::kShared, Arena::kPrivate}) arena_.protect(region, 0);
    modify(QpState::kErr, 0);
    for (const io::TxPacket& packet : waiting_) finish(packet, input_.flag());
    collect();
    check(qp_->state() == QpState::kErr, "ERR can be reached");
    check(completed_ == posted_, "every send request completes");
    const bool own = type_ != QpType::kXrcTarget && !shared_;
    check(!own || receives_lost_ || receives_completed_ == receives_posted_, "every receive request completes");
    check(!own || rq_.empty(), "in ERR the receive queue is empty");
    check(!qp_->pull_ack(last_, now_), "in ERR nothing is acknowledged");
    arena_.check_untouched();
  }

  Input& input_;
  const QpType type_;
  const bool shared_;
  queue::SendQueue sq_;
  queue::ReceiveQueue rq_;
  queue::CompletionQueue send_cq_, recv_cq_, srq_cq_;
  std::unique_ptr<queue::ReceiveQueue> srq_;
  uint32_t key_ = 1;
  memory::MrTable mrs_;
  Counters counters_;
  Arena arena_;
  wire::Envelope envelope_;
  const transport::ReceiveTarget target_;
  std::array<queue::Sge, queue::kMaxSge> receive_sges_;
  std::array<transport::ReplayEntry, transport::kMaxRdAtomic> answers_{};
  const transport::test::AnyQp qp_;
  Time now_{std::chrono::seconds(1)};
  wire::Psn next_psn_;
  std::vector<io::TxPacket> waiting_;
  io::TxPacket last_;
  uint64_t posted_ = 0, completed_ = 0;
  uint64_t receives_posted_ = 0, receives_completed_ = 0;
  bool receives_lost_ = false;
};

}  // namespace

}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::memory::install_fault_handler();
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Session(input).run();
  return 0;
}

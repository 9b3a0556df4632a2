// SPDX-License-Identifier: BSD-2-Clause
// Two connected QPs in the simulator, their applications, the network between them and an attacker, all of them led by
// the input. Input: one byte for each choice in make_settings(), then operations: a byte that says which (its high bit:
// at which of the two hosts), then what that operation reads. Time moves only in operations.
//
// Checked: memory that nobody may write is untouched; every work request completes once, in order, and never well
// after an error; deadlines that do nothing and rounds without end; counters against each other; what the QPs send can
// be parsed. As long as nobody attacks and all attributes are as declared, the oracle judges every packet.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/memory/memory_access.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/hostile_packet.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/party.h"
#include "tests/fuzz/sealed_frame.h"
#include "tests/fuzz/stepper.h"

namespace uroce::fuzz {

namespace {

using queue::WrOpcode;
using simulator::Pair;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::QpAttributes;
using transport::QpState;

constexpr uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};
constexpr uint32_t kPsns[] = {0, 100, 0x7ffffe, 0x800000, 0xfffffe, 0xfffff0};
constexpr uint32_t kToInit =
    transport::kQpState | transport::kQpPkeyIndex | transport::kQpPort | transport::kQpAccessFlags;
constexpr uint32_t kToRtr = transport::kQpState | transport::kQpAddressVector | transport::kQpPathMtu |
                            transport::kQpDestQpn | transport::kQpRqPsn | transport::kQpMaxDestRdAtomic |
                            transport::kQpMinRnrTimer;
constexpr uint32_t kToRts = transport::kQpState | transport::kQpTimeout | transport::kQpRetryCount |
                            transport::kQpRnrRetry | transport::kQpSqPsn | transport::kQpMaxRdAtomic;

struct Settings {
  QpAttributes attributes = simulator::Network::default_attributes();
  simulator::QpConfig qp;
  uint32_t psn_a, psn_b;
};

Settings make_settings(Input& input) {
  Settings s;
  s.attributes.path_mtu = input.one_of(kMtus);
  s.psn_a = input.one_of(kPsns);
  s.psn_b = input.one_of(kPsns);
  s.attributes.timeout = input.one_of<uint8_t>({14, 8, 1, 0});
  s.attributes.retry_count = input.one_of<uint8_t>({7, 0, 1, 2});
  s.attributes.rnr_retry = input.one_of<uint8_t>({7, 0, 1, 2});
  s.attributes.min_rnr_timer = input.one_of<uint8_t>({12, 1, 0, 31});
  s.attributes.max_rd_atomic = input.one_of<uint8_t>({4, 1, 16, 0});
  s.attributes.max_dest_rd_atomic = input.one_of<uint8_t>({4, 1, 16, 0});
  s.qp.depth = input.one_of({16u, 1u, 3u, 64u});
  s.qp.max_sge = input.one_of({4u, 1u, 16u});
  s.qp.max_inline = 64;
  s.qp.cq_capacity = input.one_of({256u, 256u, 256u, 2u});
  s.qp.signal_all = input.flag();
  return s;
}

uint64_t room(std::span<const queue::Sge> sges) {
  uint64_t sum = 0;
  for (const queue::Sge& sge : sges) sum += sge.length;
  return sum;
}

class Session {
 public:
  explicit Session(Input& input)
      : input_(input),
        settings_(make_settings(input)),
        pair_(1, {}, settings_.qp),
        a_(pair_.host_a, pair_.a, pair_.forward),
        b_(pair_.host_b, pair_.b, pair_.backward),
        stepper_(pair_.events, {&a_, &b_}) {
    pair_.forward.filter = [this](const simulator::Frame& frame) { return a_.observe(frame), passes(frame); };
    pair_.backward.filter = [this](const simulator::Frame& frame) { return b_.observe(frame), passes(frame); };
    connect(settings_.psn_a, settings_.psn_b);
  }

  void run() {
    constexpr int kMaxOperations = 300;
    for (int i = 0; i < kMaxOperations && !input_.empty(); ++i) {
      operate();
      a_.collect();
      b_.collect();
    }
    end();
  }

 private:
  void connect(uint32_t psn_a, uint32_t psn_b) {
    a_.next_request = b_.expected = wire::Psn(psn_a);
    b_.next_request = a_.expected = wire::Psn(psn_b);
    pair_.connect(settings_.attributes, psn_a, psn_b);
    check(pair_.a.rc.state() == QpState::kRts && pair_.b.rc.state() == QpState::kRts, "QPs in RESET can be connected");
  }

  void operate() {
    const uint8_t choice = input_.byte();
    Party& self = choice & 0x80 ? b_ : a_;
    switch (choice % 16) {
      case 0:
      case 1:
      case 2:
        return post_send(self);
      case 3:
      case 4:
        return post_receive(self);
      case 5:
      case 6:
        return stepper_.advance(microseconds(input_.byte() + 1));
      case 7:
        return stepper_.advance(milliseconds(uint64_t{1} << input_.below(11)));
      case 8:
      case 9:
      case 10:
        return inject(self);
      case 11:
        return disturb(self.out.config);
      case 12:
        lose_ = input_.byte();
        return;
      case 13:
        return change_memory(self);
      case 14:
        return modify(self);
      default:
        return reconnect();
    }
  }

  // Any work: mostly what an application would post, but every field may be wrong.
  void post_send(Party& self) {
    if (!self.may_send()) return;
    Party& peer = &self == &a_ ? b_ : a_;
    queue::SendWqe wqe{};
    wqe.opcode = static_cast<WrOpcode>(input_.below(11));
    wqe.flags = input_.byte();
    std::array<queue::Sge, queue::kMaxSge> sges;
    const uint32_t count = std::min(input_.below(4), self.qp.sq.max_sge());
    for (uint32_t i = 0; i < count; ++i) sges[i] = self.arena.range(input_, 5000);
    const queue::Sge remote = peer.arena.range(input_, 5000);
    wqe.remote_address = remote.address;
    wqe.rkey = remote.lkey;
    wqe.operands.compare_add = input_.byte();
    wqe.operands.swap = wqe.immediate_or_rkey =
        wqe.opcode == WrOpcode::kSendWithInvalidate ? remote.lkey : input_.byte();
    const bool is_inline = (wqe.flags & queue::kInline) != 0;
    std::array<uint8_t, 64> bytes{};
    wqe.flags &= ~queue::kInline;
    queue::SendQueue::Slot slot;
    if (!self.qp.sq.reserve(0, slot)) return;
    wqe.wr_id = self.sends.posted(settings_.qp.signal_all || (wqe.flags & queue::kSignaled) != 0,
                                  room(std::span(sges).first(count)));
    if (is_inline) {
      self.qp.post(wqe, {}, std::span(bytes).first(1 + input_.below(bytes.size())));
    } else {
      self.qp.post(wqe, std::span(sges).first(count));
    }
  }

  void post_receive(Party& self) {
    if (!self.may_receive() || self.qp.rq.available() >= self.qp.rq.depth()) return;
    std::array<queue::Sge, queue::kMaxSge> sges;
    const uint32_t count = std::min(input_.below(4), self.qp.rq.max_sge());
    for (uint32_t i = 0; i < count; ++i) sges[i] = self.arena.range(input_, 5000);
    const std::span<const queue::Sge> used = std::span(sges).first(count);
    check(self.qp.post_receive(self.receives.posted(true, room(used)), used), "the queue is not full");
  }

  // A packet to `victim` as if from its peer: a request near the PSN it expects, or a response near those it waits for.
  void inject(Party& victim) {
    const Party& peer = &victim == &a_ ? b_ : a_;
    judged_ = false;
    const wire::Psn bases[] = {peer.next_request, hostile_psn_, victim.expected, victim.next_request, peer.expected};
    const auto step = static_cast<int8_t>(input_.byte());
    const wire::Psn psn = input_.one_of(bases) + static_cast<uint32_t>(step / 4);
    hostile_psn_ = psn + 1;
    wire::Envelope envelope = peer.qp.envelope();
    if (step % 4 == 3) envelope.traffic_class |= wire::kEcnCe;
    const auto ib = hostile_packet(input_, victim.arena, settings_.attributes.path_mtu, psn);
    const std::vector<uint8_t> frame = sealed_frame(envelope, victim.qp.rc.qpn(), ib);
    victim.host.receive({frame.begin(), frame.end()});
  }

  void disturb(simulator::LinkConfig& link) {
    const uint8_t how_much = input_.byte();
    const double p = (how_much >> 3) / 31.0;
    switch (how_much % 8) {
      case 0:
        link.drop = p;
        return;
      case 1:
        link.drop_burst = 1 + (how_much >> 3) % 4;
        return;
      case 2:
        link.duplicate = p;
        return;
      case 3:
        link.reorder = p;
        return;
      case 4:
        link.corrupt = p;
        return;
      case 5:  // every frame is marked, or none
        link.mark_all_from = how_much >> 3 & 1;
        return;
      case 6:
        link.queue_frames = 2 + (how_much >> 3) * 8u;
        return;
      default:
        link.bits_per_second = how_much & 8 ? 1e8 : 1e10;
        return;
    }
  }

  // Loses the frames that lose_ says, one bit each.
  bool passes(const simulator::Frame&) {
    const bool lost = lose_ & 1;
    lose_ >>= 1;
    return !lost;
  }

  void change_memory(Party& self) {
    const uint8_t how = input_.byte();
    const auto region = Arena::Region{static_cast<uint8_t>(how % 2)};
    switch (how >> 1 & 7) {
      case 0:
      case 1:
        return self.arena.remove(region);
      case 2:
      case 3:
      case 4:
        return self.arena.add(region);
      default:
        return self.arena.protect(region, static_cast<uint8_t>(how >> 4));
    }
  }

  // Any state, attributes and mask; half of the time the right mask for the state.
  void modify(Party& self) {
    judged_ = false;
    QpAttributes a = settings_.attributes;
    const Party& peer = &self == &a_ ? b_ : a_;
    a.port = 1;
    a.address.destination = peer.host.address();
    a.dest_qpn = peer.qp.rc.qpn();
    a.rq_psn = self.expected;
    a.sq_psn = self.next_request;
    a.state = static_cast<QpState>(input_.below(9));
    const uint8_t how = input_.byte();
    constexpr uint32_t kMasks[] = {transport::kQpState, kToInit, kToRtr, kToRts};
    const uint32_t mask = how & 0x80 ? input_.dword() : kMasks[how % 4];
    if (how & 0x40) randomise(a);
    self.modify(a, mask);
  }

  void randomise(QpAttributes& a) {
    a.current_state = static_cast<QpState>(input_.below(8));
    a.access = input_.byte();
    a.path_mtu = input_.flag() ? input_.one_of(kMtus) : input_.word();
    a.timeout = input_.byte();
    a.retry_count = input_.byte();
    a.rnr_retry = input_.byte();
    a.min_rnr_timer = input_.byte();
    a.max_rd_atomic = input_.byte();
    a.max_dest_rd_atomic = input_.byte();
    a.rq_psn = wire::Psn(input_.dword());
    a.sq_psn = wire::Psn(input_.dword());
    a.en_sqd_async_notify = input_.flag();
  }

  // Both QPs begin anew; what is on the way is of the old connection.
  void reconnect() {
    judged_ = false;
    QpAttributes reset;
    reset.state = QpState::kReset;
    for (Party* party : {&a_, &b_}) check(party->modify(reset, transport::kQpState) == 0, "RESET is always allowed");
    connect(input_.one_of(kPsns), input_.one_of(kPsns));
  }

  void end() {
    for (Party* party : {&a_, &b_}) {
      party->collect();
      for (const Arena::Region region : {Arena::kShared, Arena::kPrivate}) party->arena.protect(region, 0);
      party->end();
    }
    stepper_.settle();
    for (Party* party : {&a_, &b_}) {
      party->collect();
      party->arena.check_untouched();
      party->check_counters();
    }
    for (Party* party : {&a_, &b_}) judged_ = judged_ && !party->lost_completions();  // which the oracle would miss
    if (judged_) check_judgement(pair_.judge.finish());
  }

  // An input may overwrite what is being sent; then what is sent again differs, as it should.
  static void check_judgement(const std::string& error) {
    if (error.empty() || error.find("resend-differs") != std::string::npos) return;
    // A NAK that tells why the QP failed was decided before the peer's own came, and leaves a round later.
    if (error.find("sends-after-fatal") != std::string::npos) return;
    std::fprintf(stderr, "fuzz: %s\n", error.c_str());
    check(false, "the oracle finds nothing");
  }

  Input& input_;
  const Settings settings_;
  Pair pair_;
  Party a_, b_;
  Stepper stepper_;
  wire::Psn hostile_psn_;  // behind the last injected packet
  uint8_t lose_ = 0;
  bool judged_ = true;
};

}  // namespace

}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::memory::install_fault_handler();
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Session(input).run();
  return 0;
}

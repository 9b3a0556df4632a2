// SPDX-License-Identifier: BSD-2-Clause
// What one lost packet costs: for every kind of work and every packet of its exchange, the loss of exactly that packet.
// The data is exact, the time is bounded by round trips and probe waits, and the retry budget is spent only by what may
// spend it (wire.md "RC semantics": timeouts, PSN NAKs and implied NAKs; probes are free).
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/simulator/network.h"
#include "wire/ip_udp.h"

namespace uroce::simulator {
namespace {

using queue::WcStatus;
using queue::WrOpcode;
using std::chrono::microseconds;
using transport::LossRecovery;
using wire::Operation;
using wire::Packet;

constexpr uint32_t kPackets = 6;
constexpr uint32_t kSize = 5 * 1024 + 100;
constexpr uint32_t kFirst = 0xfffffd;  // PSN of the message under test: it crosses the wrap
constexpr int kWarmUp = 6;             // messages before it, for the round trip to be known

bool is_atomic(WrOpcode kind) {
  return kind == WrOpcode::kCompareSwap || kind == WrOpcode::kFetchAdd;
}
bool takes_receive(WrOpcode kind) {
  return kind == WrOpcode::kSend || kind == WrOpcode::kSendWithImmediate || kind == WrOpcode::kRdmaWriteWithImmediate;
}

constexpr WrOpcode kMessages[] = {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWrite,
                                  WrOpcode::kRdmaWriteWithImmediate};
constexpr WrOpcode kAtomics[] = {WrOpcode::kCompareSwap, WrOpcode::kFetchAdd};
// The first `times` packets that `which` is true for are lost.
struct Loss {
  std::function<bool(const Packet&)> which;
  int times = 1;
};

// Packet `n` of the request.
Loss request(uint32_t n, int times = 1) {
  return {[n](const Packet& p) { return p.info->request && p.bth.psn == wire::Psn(kFirst) + n; }, times};
}
// The response or acknowledgement with the PSN of packet `n`.
Loss answer(uint32_t n, int times = 1) {
  return {[n](const Packet& p) {
            const bool negative = p.info->has_aeth && p.aeth.kind() != wire::AethKind::kAck;
            return !p.info->request && !negative && p.bth.psn == wire::Psn(kFirst) + n;
          },
          times};
}
Loss nak(wire::AethKind kind, int times = 1) {
  return {[kind](const Packet& p) { return p.info->operation == Operation::kAcknowledge && p.aeth.kind() == kind; },
          times};
}

struct Plan {
  WrOpcode kind;
  std::vector<Loss> losses{};
  uint8_t retries = 0;        // of retry_cnt that the losses may spend; all of the budget that there is
  int probes = 0;             // that have to find out, because nothing else does
  bool followed = false;      // a SEND follows, posted together with it
  Duration followed_after{};  // ... or later
  Duration receive_after{};   // the receive request is late by this
  uint8_t rnr_retries = 0;    // that this may spend
  WcStatus status = WcStatus::kSuccess;
};

struct Cost {
  Duration time{};  // from posting to the last completion
  Duration round_trip{};
  uint64_t probes = 0, timeouts = 0, retransmissions = 0;
  int lost = 0;
};

// One run of a plan, on two hosts that nothing else disturbs.
class Exchange {
 public:
  explicit Exchange(const Plan& plan) : plan_(plan), pair_(1), local_(kSize + 8, 0x11), remote_(kSize + 8, 0x22) {
    auto attributes = Network::default_attributes();
    attributes.retry_count = plan.retries;
    attributes.rnr_retry = plan.rnr_retries;
    pair_.connect(attributes, (kFirst - kWarmUp) & 0xffffff);
    for (uint32_t i = 0; i < kSize; ++i) source()[i] = static_cast<uint8_t>(i * 11 + i / 251 + 3);
    local_key_ = pair_.host_a.register_memory(local_.data(), local_.size(), memory::kLocalWrite);
    remote_key_ = pair_.host_b.register_memory(remote_.data(), remote_.size(),
                                               memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead);
    word_key_ = pair_.host_b.register_memory(&word_, sizeof(word_), memory::kLocalWrite | memory::kRemoteAtomic);
  }

  Cost run(const std::vector<Loss>& losses) {
    Cost cost;
    // All receive requests are there from the beginning, so that credits hold nothing back, unless RNR is the point.
    for (int i = 0; i < kWarmUp; ++i) EXPECT_TRUE(pair_.b.post_receive(0));
    if (plan_.receive_after == Duration{}) {
      post_receives();
      EXPECT_TRUE(pair_.b.post_receive(3));  // a READ or WRITE counts as if it took one (IBTA 9.7.7.2)
    }
    for (int i = 0; i < kWarmUp; ++i) cost.round_trip = send_and_wait();
    lose(losses);
    const Time start = pair_.events.now();
    post();
    EXPECT_TRUE(pair_.events.run_until([this] { return completed(); }, std::chrono::seconds(1))) << "hang";
    cost.time = pair_.events.now() - start;
    pair_.events.run_for(std::chrono::milliseconds(500));  // late duplicates do no harm
    cost.probes = pair_.host_a.counters.get(Counter::kProbes);
    cost.timeouts = pair_.host_a.counters.get(Counter::kTimeouts);
    cost.retransmissions = pair_.host_a.counters.get(Counter::kTxRetransmissions);
    cost.lost = lost_;
    check();
    return cost;
  }

 private:
  uint8_t* source() { return plan_.kind == WrOpcode::kRdmaRead ? remote_.data() : local_.data(); }

  Duration send_and_wait() {
    const Time start = pair_.events.now();
    queue::SendWqe wqe{};
    wqe.opcode = WrOpcode::kSend;
    wqe.flags = queue::kSignaled;
    EXPECT_TRUE(pair_.a.post(wqe, {}));
    EXPECT_TRUE(
        pair_.events.run_until([&] { return pair_.a.poll(pair_.a.send_cq).has_value(); }, std::chrono::seconds(1)));
    EXPECT_TRUE(pair_.b.poll(pair_.b.recv_cq));
    return pair_.events.now() - start;
  }

  void lose(std::vector<Loss> losses) {
    pair_.forward.filter = pair_.backward.filter =
        [this, left = std::make_shared<std::vector<Loss>>(std::move(losses))](const Frame& frame) {
          wire::Envelope envelope;
          std::span<const uint8_t> ib;
          Packet packet;
          EXPECT_EQ(wire::parse_frame(frame, envelope, ib), wire::FrameError::kNone);
          EXPECT_EQ(wire::parse_packet(ib, packet), wire::ParseError::kNone);
          for (Loss& loss : *left) {
            if (loss.times == 0 || !loss.which(packet)) continue;
            --loss.times;
            ++lost_;
            return false;
          }
          return true;
        };
  }

  void post() {
    queue::SendWqe wqe{};
    wqe.wr_id = 1;
    wqe.opcode = plan_.kind;
    wqe.flags = queue::kSignaled;
    wqe.immediate_or_rkey = 0xabcdef;
    const bool atomic = is_atomic(plan_.kind);
    wqe.remote_address = reinterpret_cast<uint64_t>(atomic ? reinterpret_cast<uint8_t*>(&word_) : remote_.data());
    wqe.rkey = atomic ? word_key_ : remote_key_;
    wqe.operands.compare_add = kWord;
    wqe.operands.swap = 77;
    if (plan_.receive_after != Duration{}) pair_.events.after(plan_.receive_after, [this] { post_receives(); });
    EXPECT_TRUE(pair_.a.post(
        wqe, {{reinterpret_cast<uint64_t>(local_.data()), atomic ? uint32_t{sizeof(word_)} : kSize, local_key_}}));
    if (!plan_.followed) return;
    pair_.events.after(plan_.followed_after, [this] {
      queue::SendWqe next{};
      next.wr_id = 2;
      next.opcode = WrOpcode::kSend;
      next.flags = queue::kSignaled;
      EXPECT_TRUE(pair_.a.post(next, {}));
    });
  }

  void post_receives() {
    const queue::Sge sge{reinterpret_cast<uint64_t>(remote_.data()), kSize, remote_key_};
    if (takes_receive(plan_.kind)) {
      EXPECT_TRUE(pair_.b.post_receive(1, std::span(&sge, 1)));
    }
    if (plan_.followed) {
      EXPECT_TRUE(pair_.b.post_receive(2));
    }
  }

  bool completed() {
    while (const auto cqe = pair_.a.poll(pair_.a.send_cq)) sent_.push_back(*cqe);
    while (const auto cqe = pair_.b.poll(pair_.b.recv_cq)) received_.push_back(*cqe);
    return sent_.size() == (plan_.followed ? 2u : 1u);
  }

  void check() {
    completed();
    ASSERT_EQ(sent_.size(), plan_.followed ? 2u : 1u);
    EXPECT_EQ(sent_[0].wr_id, 1u);
    EXPECT_EQ(sent_[0].status, plan_.status);
    EXPECT_EQ(pair_.judge.finish(), "");
    if (plan_.status != WcStatus::kSuccess) return;
    if (plan_.followed) {
      EXPECT_EQ(sent_[1].status, WcStatus::kSuccess);
    }
    check_receives();
    check_data();
  }

  void check_receives() {
    ASSERT_EQ(received_.size(), (takes_receive(plan_.kind) ? 1u : 0u) + (plan_.followed ? 1u : 0u));
    for (const queue::Cqe& cqe : received_) EXPECT_EQ(cqe.status, WcStatus::kSuccess);
    if (!takes_receive(plan_.kind)) return;
    EXPECT_EQ(received_[0].wr_id, 1u);
    EXPECT_EQ(received_[0].byte_length, kSize);
    if (plan_.kind != WrOpcode::kSend) {
      EXPECT_EQ(received_[0].immediate_or_rkey, 0xabcdefu);
    }
  }

  void check_data() {
    if (is_atomic(plan_.kind)) {
      EXPECT_EQ(word_, plan_.kind == WrOpcode::kFetchAdd ? 2 * kWord : 77) << "not executed exactly once";
      uint64_t original;
      std::copy_n(local_.data(), sizeof(original), reinterpret_cast<uint8_t*>(&original));
      EXPECT_EQ(original, kWord);
      return;
    }
    EXPECT_TRUE(std::equal(local_.begin(), local_.begin() + kSize, remote_.begin())) << "wrong bytes";
    EXPECT_EQ(std::vector<uint8_t>(local_.begin() + kSize, local_.end()), std::vector<uint8_t>(8, 0x11));
    EXPECT_EQ(std::vector<uint8_t>(remote_.begin() + kSize, remote_.end()), std::vector<uint8_t>(8, 0x22));
  }

  static constexpr uint64_t kWord = 0x0102030405060708;

  const Plan plan_;
  Pair pair_;
  std::vector<uint8_t> local_, remote_;
  uint32_t local_key_ = 0, remote_key_ = 0, word_key_ = 0;
  alignas(8) uint64_t word_ = kWord;
  std::vector<queue::Cqe> sent_, received_;
  int lost_ = 0;
};

// The longest that `count` probes in a row wait: the round trip here is far below what kMinProbe is a multiple of, and
// every wait is twice the one before it (LossRecovery::probe).
Duration probe_waits(int count) {
  Duration waits{};
  for (int i = 0; i < count; ++i) waits += LossRecovery::kMinProbe * (1 << i);
  return waits;
}

// Loses what the plan says and holds the cost against the same run without loss: each loss may cost the wait for it to
// be noticed, a round trip for the word of it, and all packets once more.
void expect_recovery(const Plan& plan) {
  SCOPED_TRACE("work " + std::to_string(static_cast<int>(plan.kind)) + (plan.followed ? ", followed by a SEND" : ""));
  const Cost clean = Exchange(plan).run({});
  ASSERT_EQ(clean.retransmissions == 0, plan.receive_after == Duration{});
  const Cost cost = Exchange(plan).run(plan.losses);
  int planned = 0;
  for (const Loss& loss : plan.losses) planned += loss.times;
  EXPECT_EQ(cost.lost, planned);
  EXPECT_EQ(cost.probes, static_cast<uint64_t>(plan.probes));
  EXPECT_EQ(cost.timeouts, 0u);
  EXPECT_LE(cost.time, (planned + 1) * clean.time + planned * cost.round_trip + probe_waits(plan.probes));
  EXPECT_LE(cost.retransmissions, clean.retransmissions + (planned + 1u) * (kPackets + 1));
}

// The budget is spent: with one retry less the work fails.
void expect_spent(Plan plan) {
  SCOPED_TRACE("one retry less");
  --plan.retries;
  plan.status = WcStatus::kRetryExceeded;
  Exchange(plan).run(plan.losses);
}

TEST(Recovery, LostPacketInFrontOfOthersIsNakked) {
  for (const WrOpcode kind : kMessages) {
    for (const uint32_t n : {0u, 2u, kPackets - 2}) {
      const Plan plan{.kind = kind, .losses = {request(n)}, .retries = 1};
      expect_recovery(plan);
      expect_spent(plan);
    }
  }
}

TEST(Recovery, LostLastPacketOfAMessageIsProbed) {
  for (const WrOpcode kind : kMessages) {
    expect_recovery({.kind = kind, .losses = {request(kPackets - 1)}, .probes = 1});
  }
}

TEST(Recovery, LostLastPacketOfAMessageIsNakkedWhenAnotherFollows) {
  for (const WrOpcode kind : kMessages) {
    const Plan plan{.kind = kind, .losses = {request(kPackets - 1)}, .retries = 1, .followed = true};
    expect_recovery(plan);
    expect_spent(plan);
  }
}

TEST(Recovery, LostReadOrAtomicRequestIsProbed) {
  for (const WrOpcode kind : {WrOpcode::kRdmaRead, kAtomics[0], kAtomics[1]}) {
    expect_recovery({.kind = kind, .losses = {request(0)}, .probes = 1});
  }
}

TEST(Recovery, LostReadOrAtomicRequestIsNakkedWhenAnotherFollows) {
  for (const WrOpcode kind : {WrOpcode::kRdmaRead, kAtomics[0], kAtomics[1]}) {
    const Plan plan{.kind = kind, .losses = {request(0)}, .retries = 1, .followed = true};
    expect_recovery(plan);
    expect_spent(plan);
  }
}

TEST(Recovery, LostReadResponseInFrontOfOthersIsAnImpliedNak) {
  for (const uint32_t n : {0u, 2u, kPackets - 2}) {
    const Plan plan{.kind = WrOpcode::kRdmaRead, .losses = {answer(n)}, .retries = 1};
    expect_recovery(plan);
    expect_spent(plan);
  }
}

TEST(Recovery, LostLastReadResponseIsProbed) {
  expect_recovery({.kind = WrOpcode::kRdmaRead, .losses = {answer(kPackets - 1)}, .probes = 1});
}

TEST(Recovery, LostAtomicResponseIsProbedAndTheAtomicExecutedOnce) {
  for (const WrOpcode kind : kAtomics) expect_recovery({.kind = kind, .losses = {answer(0)}, .probes = 1});
}

TEST(Recovery, LostResponseIsAnImpliedNakWhenAnotherAnswerFollows) {
  for (const WrOpcode kind : {WrOpcode::kRdmaRead, kAtomics[0], kAtomics[1]}) {
    const uint32_t last = kind == WrOpcode::kRdmaRead ? kPackets - 1 : 0;
    const Plan plan{.kind = kind, .losses = {answer(last)}, .retries = 1, .followed = true};
    expect_recovery(plan);
    expect_spent(plan);
  }
}

TEST(Recovery, LostAckIsProbed) {
  for (const WrOpcode kind : kMessages) {
    expect_recovery({.kind = kind, .losses = {answer(kPackets - 1)}, .probes = 1});
  }
}

// ACKs are cumulative: the next one says what the lost one said.
TEST(Recovery, LostAckCostsNothingWhenAnotherFollows) {
  for (const WrOpcode kind : kMessages) {
    expect_recovery(
        {.kind = kind, .losses = {answer(kPackets - 1)}, .followed = true, .followed_after = microseconds(60)});
  }
}

// The responder says it once for a gap and then is silent (IBTA 9.7.5.2.8), so only the clock helps. A first probe
// finds out what the peer has; one that begins with what it lacks makes it speak again, and its NAK costs what the lost
// one would have.
TEST(Recovery, LostNakIsProbed) {
  for (const WrOpcode kind : kMessages) {
    for (const uint32_t n : {0u, 2u, kPackets - 2}) {
      const bool more_lacks = n + 2 < kPackets;  // than the oldest and the newest
      const Plan plan{.kind = kind,
                      .losses = {request(n), nak(wire::AethKind::kNak)},
                      .retries = static_cast<uint8_t>(more_lacks ? 1 : 0),
                      .probes = n == 0 ? 1 : 2};
      expect_recovery(plan);
      if (more_lacks) expect_spent(plan);
    }
  }
}

TEST(Recovery, LostRnrNakIsProbed) {
  for (const WrOpcode kind : {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWriteWithImmediate}) {
    expect_recovery({.kind = kind,
                     .losses = {nak(wire::AethKind::kRnrNak)},
                     .probes = 1,
                     .receive_after = 2 * LossRecovery::kMinProbe,
                     .rnr_retries = 1});
  }
}

// A lost RNR NAK spends nothing, and its wait is not sat out either.
TEST(Recovery, LostRnrNakIsNotMissedOnceTheReceiveIsThere) {
  for (const WrOpcode kind : {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWriteWithImmediate}) {
    Plan plan{.kind = kind, .losses = {nak(wire::AethKind::kRnrNak)}, .probes = 1};
    plan.receive_after = LossRecovery::kMinProbe / 2;
    plan.rnr_retries = 1;  // the run without loss needs it
    expect_recovery(plan);
    plan.rnr_retries = 0;
    Exchange(plan).run(plan.losses);
  }
}

TEST(Recovery, LostRetransmissionIsProbed) {
  for (const WrOpcode kind : kMessages) {
    for (const uint32_t n : {0u, 2u, kPackets - 2}) {
      const Plan plan{.kind = kind, .losses = {request(n, 2)}, .retries = 1, .probes = 1};
      expect_recovery(plan);
      expect_spent(plan);
    }
    expect_recovery({.kind = kind, .losses = {request(kPackets - 1, 2)}, .probes = 2});
  }
}

// The repeated request is lost, or what answers it.
TEST(Recovery, LostRetransmissionOfAReadIsProbed) {
  for (const uint32_t n : {1u, 3u, kPackets - 2}) {
    const Plan request_lost{.kind = WrOpcode::kRdmaRead, .losses = {answer(n), request(n)}, .retries = 1, .probes = 1};
    expect_recovery(request_lost);
    expect_spent(request_lost);
  }
  expect_recovery({.kind = WrOpcode::kRdmaRead, .losses = {answer(kPackets - 1, 2)}, .probes = 2});
  expect_recovery({.kind = WrOpcode::kRdmaRead, .losses = {request(0, 2)}, .probes = 2});
}

// An implied NAK goes back once until there is progress: the same gap in the replay waits for the clock.
TEST(Recovery, GapInAReplayIsProbed) {
  const Plan plan{.kind = WrOpcode::kRdmaRead, .losses = {answer(2, 2)}, .retries = 1, .probes = 1};
  expect_recovery(plan);
  expect_spent(plan);
}

TEST(Recovery, LostRetransmissionOfAnAtomicIsProbed) {
  for (const WrOpcode kind : kAtomics) {
    expect_recovery({.kind = kind, .losses = {request(0, 2)}, .probes = 2});
    expect_recovery({.kind = kind, .losses = {answer(0), request(0)}, .probes = 2});
  }
}

// Packet n is lost n + 1 times: every flight gets one packet further, and that progress gives the whole budget back.
TEST(Recovery, EveryPacketLostInTurnSpendsOneRetryAtATime) {
  for (const WrOpcode kind : {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWrite,
                              WrOpcode::kRdmaWriteWithImmediate, WrOpcode::kRdmaRead}) {
    Plan plan{.kind = kind, .retries = 1};
    for (int n = 0; n + 1 < static_cast<int>(kPackets); ++n) {
      const auto packet = static_cast<uint32_t>(n);
      plan.losses.push_back(kind == WrOpcode::kRdmaRead ? answer(packet, n + 1) : request(packet, n + 1));
    }
    expect_recovery(plan);
    expect_spent(plan);
  }
}

}  // namespace
}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// Early probes: what a requester sends again before the transport timer, at what times, and what it makes of the
// answers (loss_recovery.h, sender.h; wire.md "Adaptive retransmission").
#include "engine/io/same_host/same_host.h"
#include "engine/transport/reliable/probe_budget.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

// --- what is sent ----------------------------------------------------------------------------------------------------

// Posts `count` SENDs of which only the last asks for an acknowledgement, and takes their packets.
void send_many(ScriptedQp& host, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) host.post(work(WrOpcode::kSend, i, 0));
  ASSERT_THAT(host.pull(), SizeIs(count));
}

TEST(Probe, IsTheOldestAndTheNewestPacketBothAskingForAnAck) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 10);
  host.receive(ack(kSqPsn + 1));
  host.expire();
  EXPECT_EQ(host.count(Counter::kProbes), 1u);
  const auto probe = host.pull();
  EXPECT_THAT(probe, ElementsAre(HasPsn(kSqPsn + 2), HasPsn(kSqPsn + 9)));
  for (const auto& packet : probe) EXPECT_TRUE(packet.headers.bth.ack_request);
  host.post(work(WrOpcode::kSend, 10));
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 10))) << "and sending goes on where it was";
}

TEST(Probe, InTheMiddleOfAMessageGoesOnThere) {
  ScriptedQp host;
  host.to_rts();
  Buffer buffer = host.make_buffer(8 * kMtu);
  host.post(work(WrOpcode::kSend, 1));
  host.post(rdma(WrOpcode::kRdmaWrite, 2, kIova, 5), {buffer.sge(0, 8 * kMtu)});
  EXPECT_THAT(host.pull(5), SizeIs(5));
  host.expire();
  EXPECT_THAT(host.pull(2),
              ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn), IsRequest(Opcode::kRcWriteMiddle, kSqPsn + 4)));
  EXPECT_THAT(host.pull(1), ElementsAre(IsRequest(Opcode::kRcWriteMiddle, kSqPsn + 5)));
}

// A peer that lacks the oldest packet has refused the others once already and is silent about them; taking the oldest,
// it may refuse again.
TEST(Probe, PeerThatLacksSomethingSaysWhat) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 10);
  host.expire();
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.receive(ack(kSqPsn));
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
  const auto again = host.pull();
  ASSERT_THAT(again, SizeIs(9));
  for (uint32_t n = 0; n < 9; ++n) EXPECT_THAT(again[n], HasPsn(kSqPsn + 1 + n));
}

// A peer that was only slow answers the packets themselves; nothing more is sent again.
TEST(Probe, SlowPeerGetsNothingElseAgain) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 10);
  host.expire();
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.receive(ack(kSqPsn + 6));
  host.receive(ack(kSqPsn + 9));
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), SizeIs(0)) << "unsignaled";
  EXPECT_EQ(host.qp.deadline(), kNever);
}

// A READ asked for again brings all its responses again: the newest packet before it does as well.
TEST(Probe, NewestIsNotOfALongRead) {
  ScriptedQp host;
  host.to_rts();
  Buffer buffer = host.make_buffer(8 * kMtu);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, 4 * kMtu)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, 0x9000, 1), {buffer.sge(4 * kMtu, 4 * kMtu)});
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.expire();
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn, 0x1000u, 4 * kMtu)));
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)));
  host.post(rdma(WrOpcode::kRdmaRead, 3, 0xa000, 1), {buffer.sge(0, kMtu)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.expire();
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn + 1, 0x1000u + kMtu, 3 * kMtu),
                                       IsReadRequest(kSqPsn + 8, 0xa000u, kMtu)));

  ScriptedQp mixed;
  mixed.to_rts();
  buffer = mixed.make_buffer(8 * kMtu);
  mixed.post(work(WrOpcode::kSend, 1));
  mixed.post(work(WrOpcode::kSend, 2));
  mixed.post(rdma(WrOpcode::kRdmaRead, 3, 0x1000, 1), {buffer.sge(0, 4 * kMtu)});
  ASSERT_THAT(mixed.pull(), SizeIs(3));
  mixed.expire();
  EXPECT_THAT(mixed.pull(), ElementsAre(HasPsn(kSqPsn), HasPsn(kSqPsn + 1)));
}

// ... and each one of a long READ may keep the peer busy for long.
TEST(Probe, LongReadIsAskedForLessOften) {
  size_t times[2];
  for (const uint32_t longer : {0, 1}) {
    ScriptedQp host;
    host.to_rts();
    const uint32_t size = (Requester::kWindow + longer) * kMtu;
    Buffer buffer = host.make_buffer(size);
    host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, size)});
    ASSERT_THAT(host.pull(), SizeIs(1));
    times[longer] = host.run_until(host.now + std::chrono::milliseconds(60)).size();
    EXPECT_EQ(host.count(Counter::kProbes), times[longer]);
  }
  EXPECT_GE(times[1], 2u);
  EXPECT_LT(times[1], times[0]);
}

// A peer that answers a READ again is busy with that: nobody reminds it of the next one, nor gives it up before the
// time that IBTA 9.7.6.1.3 allows at most.
TEST(Probe, PeerThatRepeatsAReadIsWaitedFor) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  host.to_rts(a);
  Buffer buffer = host.make_buffer(2 * kMtu);
  const Bytes data = pattern(kMtu);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, kMtu)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, 0x2000, 1), {buffer.sge(kMtu, kMtu)});
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, data));
  const Time latest = host.now + 4 * LossRecovery::transport_timeout(a.timeout);
  const auto repeat = [&] {
    host.advance(LossRecovery::kMinProbe / 2);
    host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, data));
    EXPECT_EQ(host.count(Counter::kProbes), 0u);
  };
  while (host.now + LossRecovery::kMinProbe < latest) repeat();
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  repeat();
  repeat();
  EXPECT_LE(host.qp.deadline(), latest);
  host.expire();
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(2, WcStatus::kRetryExceeded)));
}

// A peer that is slow, and sends what it was asked for with pauses (rxe on an emulated machine): each READ that is
// asked for again it will answer as well, before it comes to the next one. So it is reminded seldom, ...
class SlowRead : public testing::Test {
 protected:
  static constexpr uint32_t kResponses = 4 * Requester::kWindow;
  static constexpr Duration kPause = std::chrono::milliseconds(10), kNext = std::chrono::microseconds(20);
  static constexpr uint32_t kInARow = 8;

  SlowRead() {
    attributes.retry_count = 1;
    host.to_rts(attributes);
    buffer = host.make_buffer((kResponses + 1) * kMtu);
    host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, kResponses * kMtu)});
    host.post(rdma(WrOpcode::kRdmaRead, 2, 0x2000, 1), {buffer.sge(kResponses * kMtu, kMtu)});
    take(host.pull());
  }

  // Of the first READ each request that the host sends makes the peer send all that is left.
  void take(const std::vector<SentPacket>& packets) {
    for (const SentPacket& packet : packets) {
      const uint32_t first = (packet.headers.bth.psn.value() - kSqPsn) & wire::kMask24;
      if (first < kResponses) asked += kResponses - first;
    }
  }
  void respond(uint32_t n) {
    const Opcode opcode = n == 0                ? Opcode::kRcReadResponseFirst
                          : n + 1 == kResponses ? Opcode::kRcReadResponseLast
                                                : Opcode::kRcReadResponseMiddle;
    take(host.run_until(host.now + (++responded % kInARow == 0 ? kPause : kNext)));
    host.receive(read_response(opcode, kSqPsn + n, data));
    take(host.pull());
  }

  QpAttributes attributes = default_attributes();
  ScriptedQp host;
  Buffer buffer;
  const Bytes data = pattern(kMtu);
  uint32_t asked = 0;  // responses, the repeated ones included
  uint32_t responded = 0;
};

TEST_F(SlowRead, IsNotAskedForAgainAndAgain) {
  for (uint32_t n = 0; n < kResponses; ++n) respond(n);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_LT(asked, 5 * kResponses) << host.count(Counter::kProbes) << " probes";
}

// ... and while it repeats what it was asked for, it is waited for, however long that takes. Not for what nobody asked.
TEST_F(SlowRead, IsWaitedForWhileItRepeats) {
  for (uint32_t n = 0; n < kResponses; ++n) respond(n);
  ASSERT_GT(asked, kResponses);
  const Time begun = host.now;
  for (uint32_t n = 0; n < asked - kResponses; ++n) respond(kResponses - 2);
  ASSERT_GT(host.now - begun, 8 * LossRecovery::transport_timeout(attributes.timeout)) << "too short to tell";
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + kResponses, data));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
}

TEST_F(SlowRead, ThatIsRepeatedForEverIsGivenUp) {
  for (uint32_t n = 0; n < kResponses; ++n) respond(n);
  host.sends();
  const Duration budget = 4 * LossRecovery::transport_timeout(attributes.timeout) * (attributes.retry_count + 1);
  const Time latest = host.now + (asked - kResponses) * kPause + budget + std::chrono::seconds(1);
  while (host.sends().empty() && host.now < latest) respond(kResponses - 2);
  EXPECT_LT(host.now, latest);
}

// The wait that an RNR NAK asked for is no silence, whatever comes late meanwhile.
TEST(Probe, LateAnswerInAnRnrWaitChangesNothing) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  host.to_rts(a);
  Buffer buffer = host.make_buffer(kMtu);
  const Bytes data = pattern(kMtu);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, kMtu)});
  host.post(work(WrOpcode::kSend, 2));
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.expire();
  host.pull();
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, data));
  host.receive(rnr_nak(kSqPsn + 1, 0));  // 655 ms
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, data));
  host.expire();
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 1)));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
}

// ... and pauses for longer than it took to answer are its way: the next probe waits twice as long.
TEST(Probe, PeerThatPausesInAReadGetsMoreTime) {
  ScriptedQp host;
  host.to_rts();
  Buffer buffer = host.make_buffer(64 * kMtu);
  const Bytes data = pattern(kMtu);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, 64 * kMtu)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, data));
  Duration wait = host.qp.deadline() - host.now;
  for (uint32_t n = 1; n < 5; ++n) {
    host.expire();
    ASSERT_THAT(host.pull(), SizeIs(1));
    host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + n, data));      // was on its way
    host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + n, data));      // what the probe asked for
    host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + n - 1, data));  // more of it teaches nothing
    EXPECT_EQ(host.qp.deadline() - host.now, 2 * wait);
    wait = host.qp.deadline() - host.now;
  }
}

TEST(Probe, SayWhatTheyAre) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 3);
  host.expire();
  host.post(work(WrOpcode::kSend, 4));
  const auto sent = host.pull();
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_EQ(sent[0].reason, io::SendReason::kProbe);
  EXPECT_EQ(sent[1].reason, io::SendReason::kProbe);
  EXPECT_EQ(sent[2].reason, io::SendReason::kFirst);
}

// A retry that comes before the newest is sent makes it needless.
TEST(Probe, GoingBackEndsIt) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 4);
  host.expire();
  ASSERT_THAT(host.pull(1), ElementsAre(HasPsn(kSqPsn)));
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 1), HasPsn(kSqPsn + 2), HasPsn(kSqPsn + 3)));
}

// A peer that is away for long is asked gently, whatever was lost before: when it is back, it says what it lacks.
TEST(Probe, APeerThatIsAwayGetsTwoPacketsWhateverWasLostBefore) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 22;  // 69 s
  host.to_rts(a);
  send_many(host, 10);
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 2));
  ASSERT_THAT(host.pull(), SizeIs(8));
  for (int i = 0; i < LossRecovery::kMaxProbes; ++i) {
    host.expire();
    EXPECT_THAT(host.pull(), SizeIs(8));
  }
  for (int i = 0; i < 20; ++i) {
    const Time before = host.now;
    host.expire();
    EXPECT_LE(host.now - before, LossRecovery::kMaxSlowProbe);
    EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 2), HasPsn(kSqPsn + 9)));
  }
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
}

// Where round trips are long, too, the waits double from one to the next and do not leap to the longest.
TEST(Probe, WaitsForAPeerThatIsAwayDoubleToASecond) {
  using std::chrono::milliseconds;
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 0;
  host.to_rts(a);
  send_many(host, 1);
  host.advance(milliseconds(40));
  host.receive(ack(kSqPsn));
  send_many(host, 2);
  for (int i = 0; i < LossRecovery::kMaxProbes; ++i) {
    const Time before = host.now;
    host.expire();
    EXPECT_EQ(host.now - before, LossRecovery::kMaxProbe);
    EXPECT_THAT(host.pull(), SizeIs(2));
  }
  for (const int wait : {128, 256, 512, 1000, 1000, 1000}) {
    const Time before = host.now;
    host.expire();
    EXPECT_EQ(host.now - before, Duration(milliseconds(wait)));
    EXPECT_THAT(host.pull(), SizeIs(2));
  }
}

// --- what is learnt --------------------------------------------------------------------------------------------------

// Where packets get lost the answer to a probe gets lost as well: everything is sent again at once, until the peer
// answers something twice, which it does only to what it has.
TEST(Probe, WherePacketsAreLostEverythingIsSentAgain) {
  ScriptedQp host;
  host.to_rts();
  send_many(host, 10);
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 2));
  ASSERT_THAT(host.pull(), SizeIs(8));
  host.expire();
  ASSERT_EQ(host.count(Counter::kProbes), 1u);
  EXPECT_THAT(host.pull(), SizeIs(8));
  host.receive(ack(kSqPsn + 4));
  host.receive(ack(kSqPsn + 4));
  host.expire();
  ASSERT_EQ(host.count(Counter::kProbes), 2u);
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 5), HasPsn(kSqPsn + 9)));
}

// Only the two packets that were sent twice say nothing about the round trip, so that a peer that has become slow is
// found out by the others.
TEST(Probe, RoundTripOfAnUntouchedPacketIsMeasured) {
  constexpr Duration kSlow = std::chrono::milliseconds(5);
  ScriptedQp host;
  host.to_rts();
  send_many(host, 1);
  host.advance(std::chrono::microseconds(10));
  host.receive(ack(kSqPsn));
  send_many(host, 4);  // of which the second is timed, being neither the oldest nor the newest at any time
  const Duration before = host.qp.deadline() - host.now;
  host.expire();
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.advance(kSlow);
  host.receive(ack(kSqPsn + 2));
  EXPECT_GT(host.qp.deadline() - host.now, std::max(2 * before, kSlow));
}

// --- the budget of a destination -------------------------------------------------------------------------------------

TEST(ProbeBudgets, ABurstAndThenOneInEachInterval) {
  ProbeBudget budget;
  Time now{std::chrono::seconds(1)};
  const auto taken = [&] {
    int count = 0;
    while (budget.take(now)) ++count;
    return count;
  };
  EXPECT_EQ(taken(), ProbeBudget::kBurst);
  now += ProbeBudget::kInterval - Duration(1);
  EXPECT_EQ(taken(), 0);
  now += Duration(1);
  EXPECT_EQ(taken(), 1);
  now += 5 * ProbeBudget::kInterval;
  EXPECT_EQ(taken(), 5);
  now += std::chrono::hours(1);
  EXPECT_EQ(taken(), ProbeBudget::kBurst) << "what nobody took is not saved";
}

void spend(ProbeBudget& budget, Time now) {
  while (budget.take(now)) {
  }
}

// However often the probe is put off, it comes, and the transport timer expires when it should.
TEST(Probe, IsPutOffWhenTheDestinationHasHadItsShare) {
  ScriptedQp host;
  host.to_rts();
  ProbeBudget budget;
  host.qp.share_probes(budget);
  send_many(host, 10);
  const Time end = host.now + 4 * LossRecovery::transport_timeout(14);
  Duration last{};
  while (host.qp.deadline() < end) {
    spend(budget, host.qp.deadline());
    const Time before = host.now;
    host.expire();
    EXPECT_GT(host.now, before);
    last = host.qp.deadline() - host.now;
    EXPECT_THAT(host.pull(), IsEmpty());
  }
  EXPECT_EQ(host.count(Counter::kProbes), 0u);
  EXPECT_GE(host.count(Counter::kProbesPutOff), 3u);
  EXPECT_LE(host.count(Counter::kProbesPutOff), 12u) << "the waits double";
  EXPECT_EQ(host.qp.deadline(), end) << "the timer is not put off";
  EXPECT_LE(last, 2 * LossRecovery::kMaxProbe);
  host.expire();
  EXPECT_EQ(host.count(Counter::kTimeouts), 1u);
  EXPECT_THAT(host.pull(), SizeIs(10));
}

TEST(Probe, ThatWasPutOffManyTimesIsSentAtLast) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 0;  // never
  host.to_rts(a);
  ProbeBudget budget;
  host.qp.share_probes(budget);
  send_many(host, 10);
  for (int i = 0; i < 100; ++i) {
    ASSERT_NE(host.qp.deadline(), kNever);
    ASSERT_LE(host.qp.deadline() - host.now, 2 * LossRecovery::kMaxProbe);
    spend(budget, host.qp.deadline());
    host.expire();
  }
  EXPECT_EQ(host.count(Counter::kProbes), 0u);
  host.expire();  // the budget has had time to recover
  EXPECT_EQ(host.count(Counter::kProbes), 1u);
  EXPECT_THAT(host.pull(), SizeIs(2));
}

// Of as many as there can be at a time, by what they are told to wait when all are put off together.
TEST(Probe, QpsThatArePutOffTogetherDoNotComeBackTogether) {
  constexpr uint32_t kQps = 1000, kParts = 20;
  std::vector<int> parts(kParts);
  for (uint32_t qpn = 0; qpn < kQps; ++qpn) {
    ScriptedQp host({.qpn = 0x110000 + qpn, .depth = 16, .cq_capacity = 16});
    host.to_rts();
    ProbeBudget budget;
    host.qp.share_probes(budget);
    send_many(host, 1);
    spend(budget, host.qp.deadline());
    host.expire();
    ASSERT_EQ(host.count(Counter::kProbesPutOff), 1u);
    constexpr Duration kWait = 2 * LossRecovery::kInitialProbe;
    const Duration wait = host.qp.deadline() - host.now;
    ASSERT_GE(wait, kWait / 2);
    ASSERT_LT(wait, kWait + kWait / 2);
    ++parts[static_cast<size_t>((wait - kWait / 2) * kParts / kWait)];
  }
  EXPECT_THAT(parts, Each(testing::AllOf(testing::Ge(25), testing::Le(100)))) << "50 of each on the average";
}

TEST(Probe, BudgetIsNothingThatOneQpNotices) {
  const auto sent = [](ProbeBudget* budget) {
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.timeout = 0;
    host.to_rts(a);
    if (budget != nullptr) host.qp.share_probes(*budget);
    std::vector<std::pair<Time, uint32_t>> all;
    for (uint32_t n = 0; n < 100; ++n) {
      host.post(work(WrOpcode::kSend, n));
      host.pull();
      host.advance(std::chrono::microseconds(5));
      host.receive(ack(kSqPsn + n));
    }
    send_many(host, 10);
    const Time end = host.now + std::chrono::seconds(10);
    while (host.qp.deadline() < end) {
      host.expire();
      for (const SentPacket& packet : host.pull()) all.emplace_back(host.now, packet.headers.bth.psn.value());
    }
    return all;
  };
  ProbeBudget budget;
  const auto without = sent(nullptr);
  ASSERT_THAT(without, Not(IsEmpty()));
  EXPECT_EQ(sent(&budget), without);
}

// --- when ------------------------------------------------------------------------------------------------------------

TEST(Probe, ResendWithoutSpendingTheBudget) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 20;  // 4.3 s
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.post(work(WrOpcode::kSend, 2));
  host.pull();
  const auto sent = host.run_until(host.now + 4 * LossRecovery::transport_timeout(20) - Duration(1));
  const uint64_t probes = host.count(Counter::kProbes);
  EXPECT_GE(probes, 17u) << "whenever the peer comes back, it is noticed within a second";
  EXPECT_LE(probes, 8u + 4 + 17) << "bounded: fast ones, those whose waits double to a second, one in each second";
  EXPECT_THAT(sent, SizeIs(2 * probes));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  while (host.count(Counter::kTimeouts) == 0) {
    host.expire();
    host.pull();
  }
  EXPECT_EQ(host.qp.state(), QpState::kErr);
}

TEST(Probe, AsksForTheRestOfARead) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, 4 * kMtu)});
  host.pull();
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)));
  host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + 1, pattern(kMtu)));
  host.expire();
  ASSERT_EQ(host.count(Counter::kProbes), 1u);
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn + 2, 0x1000u + 2 * kMtu, 2 * kMtu)));
}

// Duplicates that a probe makes are acknowledged twice: harmless.
TEST(Probe, AckOfAProbeThatWasNotNeeded) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.expire();
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.receive(ack(kSqPsn));
  host.receive(ack(kSqPsn));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

// How long after sending a message the first probe is due.
Duration probe_delay(ScriptedQp& host) {
  host.post(work(WrOpcode::kSend, 100));
  host.pull();
  return host.qp.deadline() - host.now;
}

TEST(Probe, FollowTheMeasuredRoundTrip) {
  ScriptedQp near, far;
  for (const auto& [host, round_trip] :
       {std::pair(&near, std::chrono::microseconds(10)), std::pair(&far, std::chrono::microseconds(1500))}) {
    host->to_rts();
    for (uint32_t n = 0; n < 20; ++n) {
      host->post(work(WrOpcode::kSend, n));
      host->pull();
      host->advance(round_trip);
      host->receive(ack(kSqPsn + n));
    }
  }
  EXPECT_LT(probe_delay(near), probe_delay(far));
}

// There nothing is lost, and a peer that is silent waits for a core; by the network again, as before.
TEST(Probe, ThroughMemoryWaitsForAPeerWithoutACore) {
  static_assert(LossRecovery::kMinProbeThroughMemory >= io::SameHost::kPatience);
  ScriptedQp host, other;
  host.to_rts();
  other.to_rts();
  const Duration by_network = probe_delay(other);
  host.qp.allow_long(4 * kMtu);
  EXPECT_EQ(probe_delay(host), LossRecovery::kMinProbeThroughMemory);
  EXPECT_LT(by_network, LossRecovery::kMinProbeThroughMemory);
  host.expire();
  EXPECT_THAT(host.pull(), SizeIs(1)) << "it may have stopped reading for so long that packets were dropped";
  host.receive(ack(kSqPsn));
  host.qp.allow_long(0);
  EXPECT_EQ(probe_delay(host), by_network);
}

// Karn's rule (loss_recovery.h): the acknowledgement of a packet that was sent twice
// says nothing about the round trip.
TEST(Probe, ResentPacketsDoNotCountAsARoundTrip) {
  ScriptedQp fresh;
  fresh.to_rts();
  const Duration unmeasured = probe_delay(fresh);

  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.expire();  // a probe, while the acknowledgement of the first copy is on its way
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.advance(std::chrono::microseconds(1));
  host.receive(ack(kSqPsn));
  EXPECT_EQ(probe_delay(host), unmeasured);
}

}  // namespace
}  // namespace uroce::transport

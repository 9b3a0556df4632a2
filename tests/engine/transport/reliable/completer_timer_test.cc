// SPDX-License-Identifier: BSD-2-Clause
// The clocks of a requester: transport timeout and retry budget; probe_test.cc has the early probes.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

// IBTA 9.7.6.1.3: 4.096 us * 2^timeout.
Duration transport_timeout(uint8_t code) {
  return Duration(4096LL << code);
}

// Runs until the QP has counted one more timeout; gives the time it took.
Duration until_next_timeout(ScriptedQp& host) {
  const Time start = host.now;
  const uint64_t before = host.count(Counter::kTimeouts);
  while (host.count(Counter::kTimeouts) == before) {
    host.expire();
    host.pull();
    if (testing::Test::HasFatalFailure()) break;
  }
  return host.now - start;
}

TEST(CompleterTimer, NothingOutstandingHasNoDeadline) {
  ScriptedQp host;
  host.to_rts();
  EXPECT_EQ(host.qp.deadline(), kNever);
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  EXPECT_NE(host.qp.deadline(), kNever);
  host.receive(ack(kSqPsn));
  EXPECT_EQ(host.qp.deadline(), kNever);
}

// IBTA 9.7.6.1.3: the timer expires between one and four times its value. As late as it may: losses are the probes'
// work.
TEST(CompleterTimer, ExpiresBetweenOneAndFourTimesItsValue) {
  for (const uint8_t code : {1, 8, 12, 14, 18, 20}) {
    SCOPED_TRACE(int{code});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.timeout = code;
    host.to_rts(a);
    for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id));
    host.pull();
    const Duration taken = until_next_timeout(host);
    EXPECT_EQ(taken, 4 * transport_timeout(code));
  }
}

TEST(CompleterTimer, TimeoutSendsEverythingUnacknowledgedAgain) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 1;  // shorter than any probe
  host.to_rts(a);
  for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id));
  host.pull();
  host.receive(ack(kSqPsn));
  host.expire();
  EXPECT_EQ(host.count(Counter::kTimeouts), 1u);
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 1), HasPsn(kSqPsn + 2)));
}

// retry_cnt = n: sent again n times, then RETRY_EXC for the oldest, a flush for the rest (wire.md "Completion status").
TEST(CompleterTimer, RetryBudgetThenRetryExceededAndFlushInOrder) {
  for (uint8_t budget = 0; budget <= 7; ++budget) {
    SCOPED_TRACE(int{budget});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.retry_count = budget;
    host.to_rts(a);
    for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id, 0));
    host.post_receive(9);
    host.pull();
    const Time start = host.now;
    for (int i = 0; i < budget; ++i) until_next_timeout(host);
    EXPECT_EQ(host.qp.state(), QpState::kRts);
    EXPECT_THAT(host.sends(), IsEmpty());
    until_next_timeout(host);
    EXPECT_THAT(host.sends(),
                ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded), IsCompletion(2, WcStatus::kFlushError),
                            IsCompletion(3, WcStatus::kFlushError)));
    EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(9, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_EQ(host.qp.deadline(), kNever);
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_LE(host.now - start, (budget + 1) * 4 * transport_timeout(a.timeout));
  }
}

// docs/migration.md has the table: how long a peer may be away, exactly.
TEST(CompleterTimer, ThePeerIsWaitedForAsLongAsTheAttributesAllow) {
  for (const uint8_t code : {1, 8, 12, 14, 16, 18, 20, 22, 31}) {
    for (uint8_t budget = 0; budget <= 7; ++budget) {
      SCOPED_TRACE(std::to_string(code) + ", " + std::to_string(budget));
      ScriptedQp host;
      QpAttributes a = default_attributes();
      a.timeout = code;
      a.retry_count = budget;
      host.to_rts(a);
      host.post(work(WrOpcode::kSend, 1));
      const Duration longest = (budget + 1) * 4 * transport_timeout(code);
      host.run_until(host.now + longest - Duration(1));
      ASSERT_THAT(host.sends(), IsEmpty());
      host.run_until(host.now + Duration(1));
      ASSERT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
    }
  }
}

// The user has more patience than the application: all expiries together take that long, however many there are.
TEST(CompleterTimer, PatienceIsTheLeastTimeOfAllRetries) {
  constexpr Duration kPatience = std::chrono::seconds(60);
  for (const auto& [code, budget] :
       std::initializer_list<std::pair<uint8_t, uint8_t>>{{1, 0}, {14, 7}, {14, 2}, {22, 7}}) {
    SCOPED_TRACE(std::to_string(code) + ", " + std::to_string(budget));
    ScriptedQp host({.patience = kPatience});
    QpAttributes a = default_attributes();
    a.timeout = code;
    a.retry_count = budget;
    host.to_rts(a);
    host.post(work(WrOpcode::kSend, 1));
    const Duration longest = std::max<Duration>(kPatience, (budget + 1) * 4 * transport_timeout(code));
    host.run_until(host.now + longest - Duration(budget + 1));  // a division leaves that much
    ASSERT_THAT(host.sends(), IsEmpty());
    host.run_until(host.now + Duration(budget + 1));
    ASSERT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
  }
}

// A timer that is off stays so.
TEST(CompleterTimer, PatienceDoesNotSwitchTheTimerOn) {
  ScriptedQp host({.patience = std::chrono::seconds(1)});
  QpAttributes a = default_attributes();
  a.timeout = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.run_until(host.now + std::chrono::hours(1));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

// wire.md: the budget is reset on progress.
TEST(CompleterTimer, ProgressRestoresTheBudget) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.retry_count = 1;
  host.to_rts(a);
  for (uint64_t id = 1; id <= 5; ++id) host.post(work(WrOpcode::kSend, id));
  host.pull();
  for (uint32_t n = 0; n < 5; ++n) {
    until_next_timeout(host);
    ASSERT_EQ(host.qp.state(), QpState::kRts);
    host.receive(ack(kSqPsn + n));
  }
  EXPECT_THAT(host.sends(), SizeIs(5));
}

TEST(CompleterTimer, ReadResponseIsProgress) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(4 * kMtu);
  QpAttributes a = default_attributes();
  a.retry_count = 1;
  host.to_rts(a);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, 4 * kMtu)});
  host.pull();
  for (uint32_t n = 0; n < 3; ++n) {
    until_next_timeout(host);
    ASSERT_EQ(host.qp.state(), QpState::kRts);
    host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn + n, pattern(kMtu)));
  }
}

// Timeouts and NAKs share one budget.
TEST(CompleterTimer, NaksAndTimeoutsShareTheBudget) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.retry_count = 2;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  host.pull();
  until_next_timeout(host);
  ASSERT_EQ(host.qp.state(), QpState::kRts);
  until_next_timeout(host);
  EXPECT_EQ(host.qp.state(), QpState::kErr);
}

// IBTA 9.7.6.1.3: timeout 0 is off.
TEST(CompleterTimer, TimeoutZeroNeverExpires) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 0;
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.run_until(host.now + std::chrono::hours(24));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  EXPECT_THAT(host.sends(), IsEmpty());
  host.receive(ack(kSqPsn));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

// The wait of an RNR NAK is the peer's wish, not silence: neither probe nor timeout counts it.
TEST(CompleterTimer, RnrWaitIsNotATimeout) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 1;  // 8 us, far shorter than the wait
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.receive(rnr_nak(kSqPsn, 0));
  EXPECT_THAT(host.run_until(host.now + std::chrono::milliseconds(655)), IsEmpty());
  host.expire();  // the wait is over
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u) << "the clock starts with the end of the wait";
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn)));
}

// --- pauses of this host ---------------------------------------------------------------------------------------------

// As the engine does it when it finds the time `late` behind the deadline.
void wake_up_late(ScriptedQp& host, Duration late) {
  ASSERT_NE(host.qp.deadline(), kNever);
  host.now = host.qp.deadline() + late;
  host.qp.on_pause(late, host.now);
  host.qp.on_timer(host.now);
}

// Not one retry, be there none; and the first that leaves is a probe of two packets, though packets were lost before.
TEST(OwnPause, SpendsNoRetryAndProbesGentlyFirst) {
  for (const uint8_t code : {1, 8, 14, 20}) {
    SCOPED_TRACE(int{code});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.timeout = code;
    a.retry_count = 1;
    host.to_rts(a);
    for (uint64_t id = 1; id <= 10; ++id) host.post(work(WrOpcode::kSend, id, 0));
    host.pull();
    host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));  // spends the one that there is
    ASSERT_THAT(host.pull(), SizeIs(9));
    wake_up_late(host, std::chrono::minutes(1));
    EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 1), HasPsn(kSqPsn + 9)));
    EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
    EXPECT_EQ(host.count(Counter::kOwnPauses), 1u);
    const Time woken = host.now;
    host.run_until(woken + transport_timeout(code) - Duration(1));
    EXPECT_EQ(host.count(Counter::kTimeouts), 0u) << "the answer has the nominal timeout to come";
    host.receive(ack(kSqPsn + 9));
    EXPECT_EQ(host.qp.deadline(), kNever);
  }
}

// What was left of the time before the pause is left after it.
TEST(OwnPause, TheBudgetCountsTheTimeInWhichThisHostRan) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 20;
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  const Time end = host.now + 4 * transport_timeout(20);
  host.run_until(host.now + std::chrono::seconds(3));
  const Time before = host.qp.deadline();
  constexpr Duration kPause = std::chrono::hours(1);
  wake_up_late(host, kPause);
  ASSERT_LT(before, end);
  host.run_until(end + kPause - Duration(1));
  EXPECT_THAT(host.sends(), IsEmpty());
  host.run_until(end + kPause);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
}

// Who is merely slow, and comes late to everything, gives up as well; each expiry is late a bounded number of times.
TEST(OwnPause, WhoIsAlwaysLateGivesUpAllTheSame) {
  constexpr Duration kLate = std::chrono::milliseconds(50);
  for (const uint8_t code : {1, 8, 14, 18}) {
    SCOPED_TRACE(int{code});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.timeout = code;
    a.retry_count = 7;
    host.to_rts(a);
    host.post(work(WrOpcode::kSend, 1));
    host.pull();
    const Time start = host.now;
    int timers = 0;
    for (; host.qp.state() == QpState::kRts && timers < 1000; ++timers) {
      wake_up_late(host, kLate);
      host.pull();
    }
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
    EXPECT_LE(timers, 8 * 32);
    EXPECT_LE(host.now - start, 8 * 5 * transport_timeout(code) + timers * kLate);
  }
}

TEST(OwnPause, OfAQpThatWaitsForNothingIsNothing) {
  ScriptedQp host;
  host.to_rts();
  host.qp.on_pause(std::chrono::minutes(1), host.now);
  EXPECT_EQ(host.qp.deadline(), kNever);
  EXPECT_THAT(host.pull(), IsEmpty());
}

// The peer's wait is over when it is late; what it asked for is sent.
TEST(OwnPause, InAnRnrWaitEndsTheWait) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.receive(rnr_nak(kSqPsn, 12));
  wake_up_late(host, std::chrono::minutes(1));
  EXPECT_THAT(host.pull(1), ElementsAre(HasPsn(kSqPsn)));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

TEST(CompleterTimer, EarlyCallOfOnTimerDoesNothing) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.pull();
  host.qp.on_timer(host.qp.deadline() - Duration(1));
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_EQ(host.count(Counter::kProbes) + host.count(Counter::kTimeouts), 0u);
}

}  // namespace
}  // namespace uroce::transport

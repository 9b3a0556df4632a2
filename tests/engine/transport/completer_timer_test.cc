// The clocks of a requester: transport timeout, retry budget, early probes.
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

// IBTA 9.7.6.1.3: the timer expires between one and four times its value, and everything unacknowledged is sent again.
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
    EXPECT_GE(taken, transport_timeout(code));
    EXPECT_LE(taken, 4 * transport_timeout(code));
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

// --- probes (retry_timer.h; wire.md "Adaptive retransmission") -------------------------------------------------------

TEST(CompleterTimer, ProbesResendWithoutSpendingTheBudget) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.timeout = 20;  // 4.3 s
  a.retry_count = 0;
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1));
  host.post(work(WrOpcode::kSend, 2));
  host.pull();
  const auto sent = host.run_until(host.now + transport_timeout(20) - Duration(1));
  const uint64_t probes = host.count(Counter::kProbes);
  EXPECT_GE(probes, 1u);
  EXPECT_LE(probes, 8u) << "bounded";
  EXPECT_THAT(sent, SizeIs(2 * probes));
  EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  until_next_timeout(host);
  EXPECT_EQ(host.qp.state(), QpState::kErr);
}

TEST(CompleterTimer, ProbeAsksForTheRestOfARead) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 1), {buffer.sge(0, 4 * kMtu)});
  host.pull();
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)));
  host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + 1, pattern(kMtu)));
  host.expire();
  ASSERT_EQ(host.count(Counter::kProbes), 1u);
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn + 2, 0x1000 + 2 * kMtu, 2 * kMtu)));
}

// Duplicates that a probe makes are acknowledged twice: harmless.
TEST(CompleterTimer, AckOfAProbeThatWasNotNeeded) {
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

TEST(CompleterTimer, ProbesFollowTheMeasuredRoundTrip) {
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

// Karn's rule (retry_timer.h: "a packet that was sent only once"): the acknowledgement of a packet that was sent twice
// says nothing about the round trip.
TEST(CompleterTimer, ResentPacketsDoNotCountAsARoundTrip) {
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

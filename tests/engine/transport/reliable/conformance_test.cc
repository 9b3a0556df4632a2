// SPDX-License-Identifier: BSD-2-Clause
// Rules of docs/conformance.md that no other test covers in full: modify of a working QP in every state, attributes
// that take effect, and every value of the retry attributes.
#include <cerrno>
#include <functional>
#include <string>

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

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};

std::string name_of(QpState state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<size_t>(state)];
}

// The mask with which a QP is brought to `to` where that is legal from somewhere.
uint32_t mask_to(QpState from, QpState to) {
  if (from == QpState::kReset && to == QpState::kInit) return kToInit;
  if (from == QpState::kInit && to == QpState::kRtr) return kToRtr;
  if (from == QpState::kRtr && to == QpState::kRts) return kToRts;
  return kQpState;
}

void bring_to(ScriptedQp& host, QpState state) {
  if (state == QpState::kReset) return;
  host.to_init();
  if (state == QpState::kInit) return;
  ASSERT_EQ(host.modify(QpState::kRtr, kToRtr), 0);
  if (state == QpState::kRtr) return;
  ASSERT_EQ(host.modify(QpState::kRts, kToRts), 0);
  if (state == QpState::kRts) return;
  ASSERT_EQ(host.modify(state, kQpState), 0);
}

// wire.md "State transitions"; an RC QP never comes to SQE.
bool legal(QpState from, QpState to) {
  if (to == QpState::kReset) return true;
  if (to == QpState::kErr) return from != QpState::kReset;
  switch (from) {
    case QpState::kReset:
      return to == QpState::kInit;
    case QpState::kInit:
      return to == QpState::kInit || to == QpState::kRtr;
    case QpState::kRtr:
      return to == QpState::kRts;
    case QpState::kRts:
    case QpState::kSqd:
      return to == QpState::kRts || to == QpState::kSqd;
    default:
      return false;
  }
}

// IBTA 11.2.4.2: in every state to every state, with work posted; a refusal leaves everything as it was.
TEST(ConformanceModify, FromEveryStateToEveryStateWithWorkPosted) {
  for (const QpState from : kStates) {
    if (from == QpState::kSqe) continue;
    for (const QpState to : kStates) {
      SCOPED_TRACE(name_of(from) + " to " + name_of(to));
      ScriptedQp host;
      bring_to(host, from);
      host.post_receive(11);
      host.post(work(WrOpcode::kSend, 1));
      const bool flushed_before = from == QpState::kErr;
      EXPECT_THAT(host.sends(), SizeIs(flushed_before ? 1 : 0));
      EXPECT_THAT(host.receives(), SizeIs(flushed_before ? 1 : 0));

      EXPECT_EQ(host.modify(to, mask_to(from, to)), legal(from, to) ? 0 : EINVAL);
      const QpState now = legal(from, to) ? to : from;
      EXPECT_EQ(host.qp.state(), now);
      const bool flushes = now == QpState::kErr && !flushed_before;
      EXPECT_THAT(host.sends(), SizeIs(flushes ? 1 : 0));
      EXPECT_THAT(host.receives(), SizeIs(flushes ? 1 : 0));
      EXPECT_THAT(host.pull(), SizeIs(now == QpState::kRts ? 1 : 0));
      EXPECT_THAT(host.events, IsEmpty());
    }
  }
}

TEST(ConformanceModify, AccessFlagsTakeEffectWithTheNextRequest) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(64);
  host.to_rts();
  host.receive(read_request(kRqPsn, kIova, buffer.key, 64));
  EXPECT_THAT(host.drain(), ElementsAre(HasOpcode(Opcode::kRcReadResponseOnly)));
  QpAttributes a = default_attributes();
  a.access = memory::kRemoteWrite;
  ASSERT_EQ(host.modify(QpState::kRts, kQpAccessFlags, a), 0);
  host.receive(read_request(kRqPsn + 1, kIova, buffer.key, 64));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn + 1)));
}

TEST(ConformanceModify, MinRnrTimerTakesEffectWithTheNextNak) {
  ScriptedQp host;
  host.to_rts();
  host.receive(request(Opcode::kRcSendOnly, kRqPsn));
  EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn, 12)));
  QpAttributes a = default_attributes();
  a.min_rnr_timer = 5;
  ASSERT_EQ(host.modify(QpState::kRts, kQpMinRnrTimer, a), 0);
  host.receive(request(Opcode::kRcSendOnly, kRqPsn));
  EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn, 5)));
}

// IBTA 10.3.1.5: what may be changed while the send queue is drained is in force when it goes on.
TEST(ConformanceModify, WhatIsChangedWhileDrainedIsInForceAfterwards) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(16);
  host.to_rts();
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState), 0);
  QpAttributes a = default_attributes();
  a.timeout = 8;  // 1.05 ms
  a.retry_count = 1;
  a.max_rd_atomic = 1;
  ASSERT_EQ(host.modify(QpState::kSqd, kQpTimeout | kQpRetryCount | kQpMaxRdAtomic, a), 0);
  ASSERT_EQ(host.modify(QpState::kRts, kQpState), 0);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0, 1), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, 0, 1), {buffer.sge(8, 8)});
  EXPECT_THAT(host.pull(), SizeIs(1));
  host.run_until(host.now + 2 * 4 * LossRecovery::transport_timeout(8));
  EXPECT_THAT(host.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded), IsCompletion(2, WcStatus::kFlushError)));
}

// IBTA 9.7.6.1.3 and 10.3.1.2: retry_cnt expiries are survived, one more is not; also those of a READ and an atomic.
TEST(ConformanceRetries, EveryRetryCountIsThatManyRetries) {
  for (const WrOpcode kind : {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd}) {
    for (uint8_t retries = 0; retries <= 7; ++retries) {
      SCOPED_TRACE(int{retries});
      ScriptedQp host;
      Buffer buffer = host.make_buffer(8);
      QpAttributes a = default_attributes();
      a.retry_count = retries;
      host.to_rts(a);
      host.post(rdma(kind, 1, 0, 1, 0), {buffer.sge(0, 8)});
      const Time start = host.now;
      const Duration timeout = 4 * LossRecovery::transport_timeout(a.timeout);  // IBTA 9.7.6.1.3: up to four times
      ASSERT_THAT(host.pull(), SizeIs(1));
      for (uint8_t expiry = 1; expiry <= retries; ++expiry) {
        EXPECT_THAT(host.run_until(start + expiry * timeout), testing::Not(IsEmpty()));
        EXPECT_THAT(host.sends(), IsEmpty());
      }
      host.run_until(start + (retries + 1) * timeout);
      EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
    }
  }
}

// IBTA 9.7.5.2.8: rnr_retry waits are sat out, the next RNR NAK ends the QP; 7 never does.
TEST(ConformanceRetries, EveryRnrRetryIsThatManyWaits) {
  for (uint8_t retries = 0; retries <= 7; ++retries) {
    SCOPED_TRACE(int{retries});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.rnr_retry = retries;
    host.to_rts(a);
    host.post(work(WrOpcode::kSend, 1, 0));
    ASSERT_THAT(host.pull(), SizeIs(1));
    const int survived = retries == 7 ? 1000 : retries;
    for (int i = 0; i < survived; ++i) {
      host.receive(rnr_nak(kSqPsn, 1));
      ASSERT_THAT(host.sends(), IsEmpty());
      ASSERT_THAT(host.run_until(host.now + wire::rnr_delay(1)), SizeIs(1));
    }
    if (retries == 7) continue;
    host.receive(rnr_nak(kSqPsn, 1));
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kRnrRetryExceeded)));
  }
}

// The table of wire.md, written out: a code leaves as the attribute says, and a code that arrives is waited out.
TEST(ConformanceRetries, EveryRnrTimerCodeIsSentAsIsAndWaitedOut) {
  constexpr double kMilliseconds[32] = {655.36, 0.01,  0.02,  0.03,   0.04,   0.06,   0.08,   0.12,
                                        0.16,   0.24,  0.32,  0.48,   0.64,   0.96,   1.28,   1.92,
                                        2.56,   3.84,  5.12,  7.68,   10.24,  15.36,  20.48,  30.72,
                                        40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
  for (uint8_t code = 0; code < 32; ++code) {
    SCOPED_TRACE(int{code});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.min_rnr_timer = code;
    host.to_rts(a);
    host.receive(request(Opcode::kRcSendOnly, kRqPsn));
    EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn, code)));

    host.post(work(WrOpcode::kSend, 1));
    ASSERT_THAT(host.pull(), SizeIs(1));
    host.receive(rnr_nak(kSqPsn, code));
    const Time until = host.now + Duration(static_cast<int64_t>(kMilliseconds[code] * 1e6 + 0.5));
    EXPECT_THAT(host.run_until(until - Duration(1)), IsEmpty());
    EXPECT_THAT(host.run_until(until), SizeIs(1));
    EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  }
}

// IBTA 10.3.1.2, table 94: whatever ends a work request, what precedes it has succeeded before, and everything behind
// it is flushed in order, signaled or not, as are the receives.
TEST(ConformanceErrors, EveryErrorComesAfterWhatPrecedesItAndFlushesTheRestInOrder) {
  struct Case {
    const char* name;
    WcStatus status;
    WrOpcode kind;
    std::function<void(ScriptedQp&)> cause;
  };
  constexpr uint32_t kPsn = kSqPsn + 1;
  const Case cases[] = {
      {"invalid request", WcStatus::kRemoteInvalidRequestError, WrOpcode::kSend,
       [](ScriptedQp& host) { host.receive(nak(NakCode::kInvalidRequest, kPsn)); }},
      {"access", WcStatus::kRemoteAccessError, WrOpcode::kRdmaWrite,
       [](ScriptedQp& host) { host.receive(nak(NakCode::kRemoteAccessError, kPsn)); }},
      {"operation", WcStatus::kRemoteOperationError, WrOpcode::kRdmaRead,
       [](ScriptedQp& host) { host.receive(nak(NakCode::kRemoteOperationalError, kPsn)); }},
      {"response too long", WcStatus::kLocalLengthError, WrOpcode::kRdmaRead,
       [](ScriptedQp& host) { host.receive(read_response(Opcode::kRcReadResponseOnly, kPsn, pattern(12))); }},
      {"wrong response", WcStatus::kBadResponseError, WrOpcode::kFetchAdd,
       [](ScriptedQp& host) { host.receive(read_response(Opcode::kRcReadResponseOnly, kPsn, pattern(8))); }},
      {"silence", WcStatus::kRetryExceeded, WrOpcode::kSend,
       [](ScriptedQp& host) {
         host.receive(ack(kSqPsn));
         host.run_until(host.now + 4 * 4 * LossRecovery::transport_timeout(14));
       }},
      {"RNR", WcStatus::kRnrRetryExceeded, WrOpcode::kSend, [](ScriptedQp& host) {
         for (int i = 0; i < 4; ++i) {
           host.receive(rnr_nak(kPsn, 1));
           host.run_until(host.now + wire::rnr_delay(1));
         }
       }}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ScriptedQp host;
    Buffer buffer = host.make_buffer(8);
    host.to_rts();
    for (uint64_t id = 21; id <= 22; ++id) host.post_receive(id);
    host.post(work(WrOpcode::kSend, 1));
    host.post(rdma(c.kind, 2, 0x1000, 1, 0), {buffer.sge(0, 8)});
    host.post(work(WrOpcode::kSend, 3, 0));
    ASSERT_THAT(host.pull(), SizeIs(3));
    host.post(work(WrOpcode::kRdmaWrite, 4, 0));
    c.cause(host);
    EXPECT_THAT(host.sends(),
                ElementsAre(IsCompletion(1, kOk), IsCompletion(2, c.status), IsCompletion(3, WcStatus::kFlushError),
                            IsCompletion(4, WcStatus::kFlushError)));
    EXPECT_THAT(host.receives(),
                ElementsAre(IsCompletion(21, WcStatus::kFlushError), IsCompletion(22, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_EQ(host.qp.deadline(), kNever);
    EXPECT_THAT(host.drain(), IsEmpty());
  }
}

}  // namespace
}  // namespace uroce::transport

// SPDX-License-Identifier: BSD-2-Clause
// Acknowledgements and negative acknowledgements: what completes, what is sent again, how a QP ends.
#include "engine/transport/reliable/requester.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

// A QP in RTS that has sent SENDs 1 .. `count` of one packet each.
class CompleterAck : public testing::Test {
 protected:
  void send(uint64_t count, const QpAttributes& a = default_attributes()) {
    if (host_.qp.state() == QpState::kReset) host_.to_rts(a);
    for (uint64_t i = 0; i < count; ++i) host_.post(work(WrOpcode::kSend, ++last_id_));
    ASSERT_THAT(host_.pull(), SizeIs(count));
  }

  ScriptedQp host_;
  uint64_t last_id_ = 0;
};

// --- ACK (IBTA 9.7.5.1; wire.md "RC semantics") ----------------------------------------------------------------------

TEST_F(CompleterAck, AckCompletesItsMessage) {
  send(2);
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk)));
  EXPECT_EQ(host_.qp.deadline(), kNever);
}

TEST_F(CompleterAck, CoalescedAckCompletesAllBeforeItInOrder) {
  send(4);
  host_.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk), IsCompletion(3, kOk)));
}

TEST_F(CompleterAck, AckInsideAMessageDoesNotCompleteIt) {
  const Buffer buffer = host_.make_buffer(3 * kMtu);
  host_.to_rts();
  host_.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  ASSERT_THAT(host_.pull(), SizeIs(3));
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), IsEmpty());
  // What is acknowledged is not sent again.
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 2));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcSendLast, kSqPsn + 2)));
  host_.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
}

// faults.md 25, IBTA 9.7.5.1.3: duplicates and ACKs of the past are ignored.
TEST_F(CompleterAck, StaleAndDuplicateAcksAreIgnored) {
  send(2);
  host_.receive(ack(kSqPsn));
  host_.receive(ack(kSqPsn));
  host_.receive(ack(kSqPsn - 1));
  host_.receive(ack((kSqPsn - 0x7ffffe) & 0xffffff));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(host_.count(Counter::kDropStaleResponse), 3u);
  EXPECT_THAT(host_.pull(), IsEmpty());
}

// faults.md 26: never completes anything, counted.
TEST_F(CompleterAck, ResponsesToUnsentPsnsAreIgnored) {
  send(2);
  host_.post(work(WrOpcode::kSend, 3));  // posted, not sent
  host_.receive(ack(kSqPsn + 2));
  host_.receive(nak(NakCode::kRemoteAccessError, kSqPsn + 2));
  host_.receive(rnr_nak(kSqPsn + 2, 1));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + 3, {}));
  host_.receive(atomic_response(kSqPsn + 2, 0));
  host_.receive(ack(kSqPsn + 0x700000));
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kDropUnsentPsn), 6u);
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
}

TEST_F(CompleterAck, ResponsesToAnIdleQpAreIgnored) {
  host_.to_rts();
  host_.receive(ack(kSqPsn));
  host_.receive(ack(kSqPsn - 1));
  host_.receive(nak(NakCode::kInvalidRequest, kSqPsn));
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_EQ(host_.qp.deadline(), kNever);
}

// faults.md 27: AETH 010xxxxx and 1xxxxxxx, and NAK codes above 4, mean nothing.
TEST_F(CompleterAck, ReservedSyndromesAreDropped) {
  send(1);
  uint64_t reserved = 0;
  for (int syndrome = 0; syndrome < 256; ++syndrome) {
    if (syndrome < 0x40 || (syndrome >= 0x60 && syndrome <= 0x64)) continue;
    host_.receive(PeerPacket(Opcode::kRcAcknowledge, kSqPsn).aeth(static_cast<uint8_t>(syndrome)));
    EXPECT_EQ(host_.count(Counter::kDropReservedSyndrome), ++reserved) << syndrome;
  }
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_THAT(host_.pull(), IsEmpty());
}

// Credits and MSN are not used for flow control; any value acknowledges.
TEST_F(CompleterAck, AnyCreditCodeAcknowledges) {
  send(32);
  for (uint32_t code = 0; code < 32; ++code) {
    host_.receive(PeerPacket(Opcode::kRcAcknowledge, kSqPsn + code).aeth(static_cast<uint8_t>(code), 0xabcdef));
    EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(code + 1, kOk)));
  }
}

TEST_F(CompleterAck, UnsignaledSuccessHasNoCompletion) {
  host_.to_rts();
  host_.post(work(WrOpcode::kSend, 1, 0));
  host_.post(work(WrOpcode::kSend, 2));
  ASSERT_THAT(host_.pull(), SizeIs(2));
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk)));
}

// The values of enum ibv_wc_opcode.
TEST_F(CompleterAck, CompletionNamesTheOperation) {
  const Buffer buffer = host_.make_buffer(8);
  host_.to_rts();
  constexpr std::pair<WrOpcode, WcOpcode> kPairs[] = {{WrOpcode::kSend, WcOpcode::kSend},
                                                      {WrOpcode::kSendWithImmediate, WcOpcode::kSend},
                                                      {WrOpcode::kSendWithInvalidate, WcOpcode::kSend},
                                                      {WrOpcode::kRdmaWrite, WcOpcode::kRdmaWrite},
                                                      {WrOpcode::kRdmaWriteWithImmediate, WcOpcode::kRdmaWrite}};
  uint32_t psn = kSqPsn;
  for (const auto& [request, completion] : kPairs) {
    host_.post(rdma(request, 1, 0, 1), {buffer.sge(0, 8)});
    host_.pull();
    host_.receive(ack(psn++));
    const auto cqes = host_.sends();
    ASSERT_THAT(cqes, SizeIs(1));
    EXPECT_EQ(cqes[0].opcode, completion);
    EXPECT_EQ(cqes[0].timestamp, static_cast<uint64_t>(host_.now.time_since_epoch().count()));
  }
}

// --- PSN sequence error NAK (IBTA 9.7.5.2.8, 9.7.6) ------------------------------------------------------------------

TEST_F(CompleterAck, PsnNakAcknowledgesWhatPrecedesItAndGoesBack) {
  send(4);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 2));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk)));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn + 2), HasPsn(kSqPsn + 3)));
}

TEST_F(CompleterAck, PsnNakWhilePacketsAreYetToBeSentContinuesWithThem) {
  send(2);
  host_.post(work(WrOpcode::kSend, 3));
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn + 1), HasPsn(kSqPsn + 2)));
}

// faults.md 29: a million NAKs of one PSN: bounded retransmission.
TEST_F(CompleterAck, NaksOfOneGapGoBackOnce) {
  send(3);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
  ASSERT_THAT(host_.pull(), SizeIs(2));
  for (int i = 0; i < 1000; ++i) {
    host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
    ASSERT_THAT(host_.pull(), IsEmpty());
  }
  EXPECT_EQ(host_.qp.state(), QpState::kRts) << "the retry budget was spent on duplicates";
}

TEST_F(CompleterAck, ANewGapAfterProgressGoesBackAgain) {
  send(4);
  for (uint32_t gap = 0; gap < 3; ++gap) {
    host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + gap));
    EXPECT_THAT(host_.pull(), SizeIs(4 - gap));
  }
}

// wire.md: retry_cnt counts PSN NAKs too, and is reset on progress.
TEST_F(CompleterAck, PsnNaksSpendTheRetryBudgetUntilProgress) {
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  send(2, a);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded), IsCompletion(2, WcStatus::kFlushError)));
}

// An ACK that arrives while its packets are being sent again ends that.
TEST_F(CompleterAck, AckDuringRetransmissionSkipsWhatItAcknowledges) {
  send(4);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  ASSERT_THAT(host_.pull(1), ElementsAre(HasPsn(kSqPsn)));
  host_.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host_.sends(), SizeIs(3));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn + 3)));
}

// --- fatal NAKs (IBTA 9.7.5.2, table 45; wire.md "Completion status") ------------------------------------------------

TEST_F(CompleterAck, FatalNakEndsItsMessageAndFlushesTheRest) {
  constexpr std::pair<NakCode, WcStatus> kPairs[] = {
      {NakCode::kInvalidRequest, WcStatus::kRemoteInvalidRequestError},
      {NakCode::kRemoteAccessError, WcStatus::kRemoteAccessError},
      {NakCode::kRemoteOperationalError, WcStatus::kRemoteOperationError},
      {NakCode::kInvalidRdRequest, WcStatus::kRemoteInvalidRequestError}};
  for (const auto& [code, status] : kPairs) {
    ScriptedQp host;
    host.to_rts();
    for (uint64_t id = 1; id <= 4; ++id) host.post(work(WrOpcode::kSend, id, id == 2 ? 0 : queue::kSignaled));
    ASSERT_THAT(host.pull(3), SizeIs(3));
    host.receive(nak(code, kSqPsn + 1));
    EXPECT_THAT(host.sends(),
                ElementsAre(IsCompletion(1, kOk), IsCompletion(2, status), IsCompletion(3, WcStatus::kFlushError),
                            IsCompletion(4, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_EQ(host.qp.deadline(), kNever);
  }
}

TEST_F(CompleterAck, FatalNakFlushesTheReceiveQueueToo) {
  send(1);
  host_.post_receive(21);
  host_.receive(nak(NakCode::kRemoteAccessError, kSqPsn));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(21, WcStatus::kFlushError)));
}

TEST_F(CompleterAck, FatalNakInsideAMessageEndsIt) {
  const Buffer buffer = host_.make_buffer(3 * kMtu);
  host_.to_rts();
  host_.post(rdma(WrOpcode::kRdmaWrite, 1, 0, 1), {buffer.sge(0, 3 * kMtu)});
  ASSERT_THAT(host_.pull(), SizeIs(3));
  host_.receive(nak(NakCode::kRemoteAccessError, kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kRemoteAccessError)));
}

// --- RNR NAK (IBTA 9.7.5.2.8, 9.7.5.2 table 46) ----------------------------------------------------------------------

// wire.md "RNR timer codes", in microseconds.
constexpr int64_t kRnrMicroseconds[32] = {
    655360, 10,   20,   30,   40,    60,    80,    120,   160,   240,   320,   480,    640,    960,    1280,   1920,
    2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

TEST_F(CompleterAck, RnrNakIsWaitedOutForItsCodeThenEverythingFromItsPsnIsSentAgain) {
  for (uint8_t code = 0; code < 32; ++code) {
    SCOPED_TRACE(int{code});
    ScriptedQp host;
    host.to_rts();
    for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id));
    ASSERT_THAT(host.pull(), SizeIs(3));
    host.receive(rnr_nak(kSqPsn + 1, code));
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk))) << "it acknowledges what precedes it";
    EXPECT_THAT(host.run_until(host.now + std::chrono::microseconds(kRnrMicroseconds[code]) - Duration(1)), IsEmpty());
    EXPECT_FALSE(host.qp.wants_to_send(host.now));
    host.advance(Duration(1));
    EXPECT_EQ(host.qp.deadline(), host.now);
    EXPECT_TRUE(host.qp.wants_to_send(host.now));
    EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 1), HasPsn(kSqPsn + 2)));
  }
}

// rnr_retry = n: sent again n times, the next RNR NAK ends the QP; 7 is infinite (IBTA 9.7.5.2.8).
TEST_F(CompleterAck, RnrRetryBudget) {
  for (uint8_t budget = 0; budget <= 6; ++budget) {
    SCOPED_TRACE(int{budget});
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.rnr_retry = budget;
    host.to_rts(a);
    host.post(work(WrOpcode::kSend, 1));
    host.post(work(WrOpcode::kSend, 2));
    host.pull();
    for (int i = 0; i < budget; ++i) {
      host.receive(rnr_nak(kSqPsn, 1));
      ASSERT_EQ(host.qp.state(), QpState::kRts);
      host.advance(std::chrono::milliseconds(1));
      ASSERT_THAT(host.pull(), SizeIs(2));
    }
    host.receive(rnr_nak(kSqPsn, 1));
    EXPECT_THAT(host.sends(),
                ElementsAre(IsCompletion(1, WcStatus::kRnrRetryExceeded), IsCompletion(2, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
  }
}

TEST_F(CompleterAck, RnrRetrySevenNeverGivesUp) {
  QpAttributes a = default_attributes();
  a.rnr_retry = 7;
  send(1, a);
  for (int i = 0; i < 1000; ++i) {
    host_.receive(rnr_nak(kSqPsn, 1));
    host_.advance(std::chrono::milliseconds(1));
    ASSERT_THAT(host_.pull(), SizeIs(1));
  }
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
}

TEST_F(CompleterAck, DuplicatesOfAnRnrNakNeitherExtendTheWaitNorSpendTheBudget) {
  QpAttributes a = default_attributes();
  a.rnr_retry = 1;
  send(1, a);
  host_.receive(rnr_nak(kSqPsn, 14));  // 1.28 ms
  host_.advance(std::chrono::milliseconds(1));
  for (int i = 0; i < 10; ++i) host_.receive(rnr_nak(kSqPsn, 14));
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  host_.advance(std::chrono::microseconds(280));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn)));
}

// wire.md "rxe as a peer": after an RNR NAK the next later PSN gets a PSN NAK too: keep honouring the RNR timer.
TEST_F(CompleterAck, PsnNakDuringAnRnrWaitChangesNothing) {
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  send(2, a);
  host_.receive(rnr_nak(kSqPsn, 14));
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_THAT(host_.pull(), IsEmpty());
  host_.advance(std::chrono::microseconds(1280));
  EXPECT_THAT(host_.pull(), SizeIs(2));
}

TEST_F(CompleterAck, RnrBudgetIsRestoredByProgress) {
  QpAttributes a = default_attributes();
  a.rnr_retry = 1;
  send(3, a);
  for (uint32_t n = 0; n < 3; ++n) {
    host_.receive(rnr_nak(kSqPsn + n, 1));
    ASSERT_EQ(host_.qp.state(), QpState::kRts);
    host_.advance(std::chrono::milliseconds(1));
    ASSERT_THAT(host_.pull(), SizeIs(3 - n));
  }
}

// An acknowledgement during the wait shows that a receive was posted after all.
TEST_F(CompleterAck, AckDuringAnRnrWaitCompletesAndEndsTheWait) {
  send(1);
  host_.receive(rnr_nak(kSqPsn, 14));
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(host_.qp.deadline(), kNever);
  send(1);  // at once
}

}  // namespace
}  // namespace uroce::transport

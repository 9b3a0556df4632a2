// SPDX-License-Identifier: BSD-2-Clause
// The state of an RC QP: modify, what each state receives and sends, SQD, RESET, ERR, and its asynchronous events.
#include "engine/transport/reliable/rc_qp.h"

#include <array>
#include <cerrno>
#include <functional>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

TEST(RcQp, GoesFromResetToReadyToSend) {
  ScriptedQp host;
  EXPECT_EQ(host.qp.state(), QpState::kReset);
  host.to_rts();
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  EXPECT_EQ(host.qp.attributes().timeout, default_attributes().timeout);
  EXPECT_EQ(host.qp.attributes().dest_qpn, wire::Qpn(kPeerQpn));
}

// IBTA 11.2.4.2: a modify that fails changes nothing.
TEST(RcQp, RefusedModifyChangesNothing) {
  ScriptedQp host;
  host.to_init();
  QpAttributes bad = default_attributes();
  bad.path_mtu = 1500;
  EXPECT_EQ(host.modify(QpState::kRtr, kToRtr, bad), EINVAL);
  EXPECT_EQ(host.modify(QpState::kRtr, kToRtr & ~kQpRqPsn), EINVAL);
  EXPECT_EQ(host.modify(QpState::kRts, kToRts), EINVAL);
  EXPECT_EQ(host.qp.state(), QpState::kInit);
  EXPECT_EQ(host.qp.attributes().path_mtu, QpAttributes{}.path_mtu);
  EXPECT_EQ(host.qp.attributes().min_rnr_timer, 0);
}

TEST(RcQp, WithoutStateInTheMaskTheStateStays) {
  ScriptedQp host;
  host.to_rts();
  QpAttributes a;
  a.min_rnr_timer = 3;
  EXPECT_EQ(host.modify(QpState::kErr, kQpMinRnrTimer, a), 0);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  EXPECT_EQ(host.qp.attributes().min_rnr_timer, 3);
}

// IBTA 11.2.4.2: the caller's belief about the current state must be right.
TEST(RcQp, WrongCurrentStateIsRefused) {
  ScriptedQp host;
  host.to_rtr();
  QpAttributes a = default_attributes();
  a.current_state = QpState::kRts;
  EXPECT_EQ(host.modify(QpState::kRts, kToRts | kQpCurrentState, a), EINVAL);
  a.current_state = QpState::kRtr;
  EXPECT_EQ(host.modify(QpState::kRts, kToRts | kQpCurrentState, a), 0);
}

struct Value {
  const char* name;
  bool legal;
  std::function<void(QpAttributes&)> set;
};

void check_values(QpState to, uint32_t mask, const std::vector<Value>& values) {
  for (const Value& value : values) {
    SCOPED_TRACE(value.name);
    ScriptedQp host;
    to == QpState::kRtr ? host.to_init() : host.to_rtr();
    QpAttributes a = default_attributes();
    value.set(a);
    EXPECT_EQ(host.modify(to, mask, a), value.legal ? 0 : EINVAL);
  }
}

TEST(RcQp, ValuesOutOfRangeAreRefusedToRtr) {
  check_values(QpState::kRtr, kToRtr,
               {{"MTU 0", false, [](auto& a) { a.path_mtu = 0; }},
                {"MTU 128", false, [](auto& a) { a.path_mtu = 128; }},
                {"MTU 256", true, [](auto& a) { a.path_mtu = 256; }},
                {"MTU 257", false, [](auto& a) { a.path_mtu = 257; }},
                {"MTU 512", true, [](auto& a) { a.path_mtu = 512; }},
                {"MTU 1024", true, [](auto& a) { a.path_mtu = 1024; }},
                {"MTU 2048", true, [](auto& a) { a.path_mtu = 2048; }},
                {"MTU 4096", true, [](auto& a) { a.path_mtu = 4096; }},
                {"MTU 8192", false, [](auto& a) { a.path_mtu = 8192; }},
                {"RNR timer 31", true, [](auto& a) { a.min_rnr_timer = 31; }},
                {"RNR timer 32", false, [](auto& a) { a.min_rnr_timer = 32; }},
                {"READ depth 0", true, [](auto& a) { a.max_dest_rd_atomic = 0; }},
                {"READ depth 16", true, [](auto& a) { a.max_dest_rd_atomic = 16; }},
                {"READ depth 17", false, [](auto& a) { a.max_dest_rd_atomic = 17; }}});
}

TEST(RcQp, ValuesOutOfRangeAreRefusedToRts) {
  check_values(QpState::kRts, kToRts,
               {{"timeout 0", true, [](auto& a) { a.timeout = 0; }},
                {"timeout 31", true, [](auto& a) { a.timeout = 31; }},
                {"timeout 32", false, [](auto& a) { a.timeout = 32; }},
                {"retry count 7", true, [](auto& a) { a.retry_count = 7; }},
                {"retry count 8", false, [](auto& a) { a.retry_count = 8; }},
                {"RNR retry 7", true, [](auto& a) { a.rnr_retry = 7; }},
                {"RNR retry 8", false, [](auto& a) { a.rnr_retry = 8; }},
                {"READ depth 16", true, [](auto& a) { a.max_rd_atomic = 16; }},
                {"READ depth 17", false, [](auto& a) { a.max_rd_atomic = 17; }}});
}

// --- what a state receives and sends ---------------------------------------------------------------------------------

// faults.md 9: a QP in RESET, INIT or ERR drops silently. IBTA 10.3.1: RTR receives.
// The engine brings the room: the transport allocates nothing.
TEST(RcQp, GrantsNoMoreAnswersThanItHasRoomToRemember) {
  ScriptedQp host;
  host.to_init();
  QpAttributes a = default_attributes();
  a.state = QpState::kRtr;
  a.max_dest_rd_atomic = 1;
  EXPECT_EQ(host.qp.modify(a, kToRtr, host.now), ENOMEM);
  EXPECT_EQ(host.qp.state(), QpState::kInit);
  std::array<ReplayEntry, 1> room;
  host.qp.remember_answers_in(room);
  EXPECT_EQ(host.qp.modify(a, kToRtr, host.now), 0);
}

TEST(RcQp, RequestsAreReceivedFromReadyToReceiveOn) {
  for (const QpState state :
       {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts, QpState::kSqd, QpState::kErr}) {
    SCOPED_TRACE(int{static_cast<uint8_t>(state)});
    ScriptedQp host;
    if (state == QpState::kInit) host.to_init();
    if (state == QpState::kRtr) host.to_rtr();
    if (state >= QpState::kRts) host.to_rts();
    if (state >= QpState::kSqd) {
      ASSERT_EQ(host.modify(state, kQpState), 0);
    }
    host.receive(request(Opcode::kRcWriteOnly, kRqPsn).ack_request());
    const bool receives = state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd;
    EXPECT_THAT(host.drain(), SizeIs(receives ? 1 : 0));
    EXPECT_EQ(host.count(Counter::kDropQpState), receives ? 0u : 1u);
  }
}

TEST(RcQp, ResponsesAreNotLookedAtBeforeReadyToSend) {
  ScriptedQp host;
  host.to_rtr();
  host.receive(ack(kSqPsn));
  EXPECT_EQ(host.count(Counter::kDropQpState), 1u);
}

TEST(RcQp, PacketsOfOtherTransportsAreDropped) {
  ScriptedQp host;
  host.to_rts();
  for (const Opcode opcode : {Opcode::kUcSendOnly, Opcode::kUcWriteOnly, Opcode::kUdSendOnly, Opcode::kXrcSendOnly,
                              Opcode::kXrcAcknowledge}) {
    Bytes bytes(64);
    bytes[0] = static_cast<uint8_t>(opcode);
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(std::span(bytes).first(wire::opcode_info(opcode).header_size + 4), packet),
              wire::ParseError::kNone);
    host.qp.on_packet(packet, host.now);
  }
  EXPECT_EQ(host.count(Counter::kDropWrongTransport), 5u);
  EXPECT_THAT(host.drain(), IsEmpty());
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

// IBTA 10.3.1.1 (RTR): no requests are sent, requests of the peer are answered.
TEST(RcQp, ReadyToReceiveAnswersButDoesNotSend) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(16);
  host.to_rtr();
  host.post(work(WrOpcode::kSend, 1));
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 16));
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), ElementsAre(IsReadResponse(Opcode::kRcReadResponseOnly, kRqPsn, buffer.bytes)));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
}

// IBTA 11.6.3.2: the event is for the first packet that comes while the QP is in RTR.
TEST(RcQp, FirstPacketInReadyToReceiveRaisesCommunicationEstablishedOnce) {
  ScriptedQp host;
  host.to_rtr();
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn + 1));
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kCommunicationEstablished));

  ScriptedQp ready;
  ready.to_rts();
  ready.receive(request(Opcode::kRcWriteOnly, kRqPsn));
  EXPECT_THAT(ready.events, IsEmpty());
}

// --- RESET and ERR ---------------------------------------------------------------------------------------------------

// IBTA 10.3.1: to RESET without a trace: no completions, no packets, and a fresh start afterwards.
TEST(RcQp, ResetForgetsEverything) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(64);
  host.to_rts();
  for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id));
  host.post(rdma(WrOpcode::kRdmaRead, 4, 0, 1), {buffer.sge(0, 8)});
  ASSERT_THAT(host.pull(), SizeIs(4));
  host.receive(rnr_nak(kSqPsn, 0));  // waits for 655.36 ms
  host.post_receive(9);
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn).ack_request());
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));

  ASSERT_EQ(host.modify(QpState::kReset, kQpState), 0);
  EXPECT_THAT(host.drain(), IsEmpty());
  EXPECT_THAT(host.sends(), IsEmpty());
  EXPECT_THAT(host.receives(), IsEmpty());
  EXPECT_EQ(host.qp.deadline(), kNever);
  EXPECT_FALSE(host.qp.ack_owed());
  EXPECT_EQ(host.qp.attributes().path_mtu, QpAttributes{}.path_mtu);

  QpAttributes again = default_attributes();
  again.sq_psn = wire::Psn(7);
  host.to_rts(again);
  host.post(work(WrOpcode::kSend, 5));
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, 7)));
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(wire::NakCode::kPsnSequenceError, kRqPsn))) << "old READ remembered";
  host.receive(request(Opcode::kRcSendOnly, kRqPsn));
  EXPECT_THAT(host.drain(), ElementsAre(testing::AllOf(IsRnrNak(kRqPsn, 12), HasMsn(0)))) << "old receive or MSN kept";
  host.receive(ack(7));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(5, WcStatus::kSuccess)));
}

// IBTA 10.3.1.2: in ERR everything outstanding, and everything posted later, completes with a flush error in order.
TEST(RcQp, ErrorFlushesBothQueuesInOrderAlsoWhatIsPostedLater) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.post(work(WrOpcode::kSend, 2, 0));  // unsignaled: errors complete all the same
  ASSERT_THAT(host.pull(1), SizeIs(1));
  host.post(work(WrOpcode::kSend, 3));
  host.post_receive(11);
  host.post_receive(12);
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kFlushError), IsCompletion(2, WcStatus::kFlushError),
                                        IsCompletion(3, WcStatus::kFlushError)));
  EXPECT_THAT(host.receives(),
              ElementsAre(IsCompletion(11, WcStatus::kFlushError), IsCompletion(12, WcStatus::kFlushError)));
  host.post(work(WrOpcode::kRdmaRead, 4, 0));
  host.post_receive(13);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(4, WcStatus::kFlushError)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(13, WcStatus::kFlushError)));
  EXPECT_THAT(host.drain(), IsEmpty());
  EXPECT_EQ(host.qp.deadline(), kNever);
}

// IBTA 11.6.3.1: a lost completion takes the QP to the error state and is reported.
TEST(RcQp, CompletionQueueOverrunEndsTheQp) {
  ScriptedQp host(ScriptedQp::Config{.cq_capacity = 2});
  host.to_rts();
  for (uint64_t id = 1; id <= 4; ++id) host.post(work(WrOpcode::kSend, id));
  ASSERT_THAT(host.pull(), SizeIs(4));
  host.receive(ack(kSqPsn + 2));
  EXPECT_EQ(host.qp.state(), QpState::kErr);
  ASSERT_FALSE(host.events.empty());
  EXPECT_EQ(host.events[0], AsyncEvent::kCqError);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
}

// --- SQD (IBTA 10.3.1.5; wire.md "State transitions") ----------------------------------------------------------------

int to_sqd(ScriptedQp& host) {
  QpAttributes a;
  a.en_sqd_async_notify = true;
  return host.modify(QpState::kSqd, kQpState | kQpEnSqdAsyncNotify, a);
}

TEST(RcQp, DrainingFinishesWhatIsBegunStartsNothingNewAndReportsOnce) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(3 * kMtu);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  host.post(work(WrOpcode::kSend, 2));
  ASSERT_THAT(host.pull(1), SizeIs(1));
  ASSERT_EQ(to_sqd(host), 0);
  EXPECT_THAT(host.pull(),
              ElementsAre(IsRequest(Opcode::kRcSendMiddle, kSqPsn + 1), IsRequest(Opcode::kRcSendLast, kSqPsn + 2)));
  EXPECT_THAT(host.events, IsEmpty());
  host.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kSqDrained));
  host.post(work(WrOpcode::kSend, 3));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), IsEmpty());
  host.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host.events, SizeIs(1)) << "reported again";

  ASSERT_EQ(host.modify(QpState::kRts, kQpState), 0);
  EXPECT_THAT(host.pull(),
              ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn + 3), IsRequest(Opcode::kRcSendOnly, kSqPsn + 4)));
}

TEST(RcQp, DrainingAnIdleQueueReportsAtOnce) {
  ScriptedQp host;
  host.to_rts();
  ASSERT_EQ(to_sqd(host), 0);
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kSqDrained));
}

TEST(RcQp, DrainingReportsOnlyWhenAskedTo) {
  ScriptedQp host;
  host.to_rts();
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState), 0);
  EXPECT_THAT(host.events, IsEmpty());
}

TEST(RcQp, DrainingRetransmitsWhatWasLost) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  ASSERT_THAT(host.pull(), SizeIs(1));
  ASSERT_EQ(to_sqd(host), 0);
  host.expire();
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn)));
}

// A WQE that waits for the READ depth has not been started: draining does not wait for it.
TEST(RcQp, DrainingDoesNotWaitForAReadThatTheDepthHeldBack) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(16);
  QpAttributes a = default_attributes();
  a.max_rd_atomic = 1;
  host.to_rts(a);
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0, 1), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, 0, 1), {buffer.sge(8, 8)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  ASSERT_EQ(to_sqd(host), 0);
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  ASSERT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kSqDrained));
}

TEST(RcQp, DrainingDoesNotWaitForAWqeThatAFenceHeldBack) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(16);
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, 0, 1), {buffer.sge(0, 8)});
  host.post(work(WrOpcode::kSend, 2, queue::kFence));
  ASSERT_THAT(host.pull(), SizeIs(1));
  ASSERT_EQ(to_sqd(host), 0);
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kSqDrained));
}

}  // namespace
}  // namespace uroce::transport

// SPDX-License-Identifier: BSD-2-Clause
// End-to-end flow control (IBTA 9.7.7.2): the responder tells how many receive requests it has, the requester does not
// send more messages that need one, save one packet at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using wire::Opcode;

// An ACK of `psn` that says: `msn` messages are complete, `credits` more receive requests are there.
PeerPacket ack_with_credits(uint32_t psn, uint32_t msn, uint32_t credits) {
  return PeerPacket(Opcode::kRcAcknowledge, psn).aeth(wire::credit_code_for(credits), msn);
}

class ResponderCredits : public testing::Test {
 protected:
  ResponderCredits() { host_.to_rtr(); }
  void post_receives(int count) {
    for (int i = 0; i < count; ++i) host_.post_receive(static_cast<uint64_t>(i), {buffer_.sge(0, 2 * kMtu)});
  }
  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
};

TEST_F(ResponderCredits, AckCountsTheReceivesThatAreLeft) {
  post_receives(3);
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn).ack_request());
  EXPECT_THAT(host_.pull_ack(), ElementsAre(AllOf(HasCredits(2), HasMsn(1))));
  post_receives(2);
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn + 1).ack_request());
  EXPECT_THAT(host_.pull_ack(), ElementsAre(AllOf(HasCredits(4), HasMsn(2))));
}

TEST_F(ResponderCredits, CountsAreRoundedDownToWhatACodeSays) {
  post_receives(8);
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn).ack_request());
  EXPECT_THAT(host_.pull_ack(), ElementsAre(HasCredits(6))) << "7 are left, and there is no code for 7";
}

TEST_F(ResponderCredits, TheReceiveOfAMessageInProgressIsStillCounted) {
  post_receives(1);
  host_.receive(request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu)).ack_request());
  EXPECT_THAT(host_.pull_ack(), ElementsAre(AllOf(HasCredits(1), HasMsn(0))));
  host_.receive(request(Opcode::kRcSendLast, kRqPsn + 1, pattern(8)).ack_request());
  EXPECT_THAT(host_.pull_ack(), ElementsAre(AllOf(HasCredits(0), HasMsn(1))));
}

TEST_F(ResponderCredits, ReadAndAtomicResponsesCarryThem) {
  post_receives(2);
  host_.receive(read_request(kRqPsn, buffer_.iova, buffer_.key, 8));
  host_.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn + 1).atomic(buffer_.iova, buffer_.key, 1));
  EXPECT_THAT(host_.pull(), ElementsAre(HasCredits(2), HasCredits(2)));
}

TEST(ResponderCreditsShared, ASharedReceiveQueueGivesNone) {
  ScriptedQp host({.rq_shared = true});
  host.to_rtr();
  host.post_receive(1);
  host.post_receive(2);
  host.receive(request(Opcode::kRcSendOnly, kRqPsn).ack_request());
  EXPECT_THAT(host.pull_ack(), ElementsAre(HasCredits(wire::kNoCredits)));
}

class RequesterCredits : public testing::Test {
 protected:
  RequesterCredits() { host_.to_rts(); }
  // One message is under way; the peer acknowledges it and has `credits` receive requests left.
  void learn(uint32_t credits) {
    host_.post(work(WrOpcode::kSend, 1000));
    ASSERT_THAT(host_.pull(), SizeIs(1));
    host_.receive(ack_with_credits(kSqPsn, 1, credits));
    (void)host_.sends();
  }
  void post_sends(int count, uint8_t flags = queue::kSignaled) {
    for (int i = 0; i < count; ++i) host_.post(work(WrOpcode::kSend, static_cast<uint64_t>(i), flags));
  }
  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(8 * kMtu);
};

TEST_F(RequesterCredits, UnknownUntilThePeerSaysSomething) {
  post_sends(100);
  EXPECT_THAT(host_.pull(), SizeIs(100));
}

TEST_F(RequesterCredits, SendsWhatThePeerHasReceivesForAndAsksForAnAckWithTheLast) {
  learn(3);
  post_sends(10, 0);
  const auto sent = host_.pull();
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_THAT(sent[2], AsksForAck());
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
}

TEST_F(RequesterCredits, NewCreditsLetItGoOn) {
  learn(1);
  post_sends(10);
  EXPECT_THAT(host_.pull(), SizeIs(1));
  host_.receive(ack_with_credits(kSqPsn + 1, 2, 4));
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  EXPECT_THAT(host_.pull(), SizeIs(4));
}

// "Limited": it may be that a receive request was posted meanwhile, and nobody would say so.
TEST_F(RequesterCredits, WithoutCreditsOnePacketAtATime) {
  learn(0);
  post_sends(3);
  EXPECT_THAT(host_.pull(), ElementsAre(AllOf(IsRequest(Opcode::kRcSendOnly, kSqPsn + 1), AsksForAck())));
  host_.receive(ack_with_credits(kSqPsn + 1, 2, 0));
  EXPECT_THAT(host_.pull(), ElementsAre(AllOf(IsRequest(Opcode::kRcSendOnly, kSqPsn + 2), AsksForAck())));
}

TEST_F(RequesterCredits, TheFirstPacketOfALongSendTriesItsLuckAndTheRestFollowsItsAck) {
  learn(0);
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 3 * kMtu)});
  EXPECT_THAT(host_.pull(), ElementsAre(AllOf(IsRequest(Opcode::kRcSendFirst, kSqPsn + 1), AsksForAck())));
  host_.receive(ack_with_credits(kSqPsn + 1, 1, 0));
  EXPECT_THAT(host_.pull(), ElementsAre(HasOpcode(Opcode::kRcSendMiddle), HasOpcode(Opcode::kRcSendLast)));
}

TEST_F(RequesterCredits, AWriteWithImmediateSendsItsDataButNotTheNextMessage) {
  learn(0);
  host_.post(rdma(WrOpcode::kRdmaWriteWithImmediate, 1, 0, 0), {buffer_.sge(0, 2 * kMtu)});
  post_sends(1);
  EXPECT_THAT(host_.pull(), ElementsAre(HasOpcode(Opcode::kRcWriteFirst), HasOpcode(Opcode::kRcWriteLastImmediate)));
}

TEST_F(RequesterCredits, WritesReadsAndAtomicsNeedNone) {
  learn(0);
  for (int i = 0; i < 5; ++i) host_.post(rdma(WrOpcode::kRdmaWrite, 1, 0, 0), {buffer_.sge(0, 8)});
  host_.post(rdma(WrOpcode::kRdmaRead, 2, 0, 0), {buffer_.sge(0, 8)});
  host_.post(rdma(WrOpcode::kFetchAdd, 3, 0, 0), {buffer_.sge(0, 8)});
  EXPECT_THAT(host_.pull(), SizeIs(7));
}

// The message numbers of the peer count every message, so a SEND behind WRITEs may be beyond a limit that counts
// receives: it waits until the WRITEs are acknowledged, not for ever.
TEST_F(RequesterCredits, ASendBehindWritesWaitsForTheirAck) {
  learn(1);
  for (int i = 0; i < 3; ++i) host_.post(rdma(WrOpcode::kRdmaWrite, 1, 0, 0), {buffer_.sge(0, 8)});
  post_sends(1);
  EXPECT_THAT(host_.pull(), SizeIs(3));
  host_.receive(ack_with_credits(kSqPsn + 3, 4, 1));
  EXPECT_THAT(host_.pull(), ElementsAre(HasOpcode(Opcode::kRcSendOnly)));
}

TEST_F(RequesterCredits, AnOlderLimitDoesNotTakeCreditsBack) {
  learn(0);
  post_sends(6);
  ASSERT_THAT(host_.pull(), SizeIs(1));
  host_.receive(ack_with_credits(kSqPsn + 1, 2, 4));
  ASSERT_THAT(host_.pull(), SizeIs(4));
  host_.receive(ack_with_credits(kSqPsn + 2, 2, 1));  // was sent before the one above
  host_.receive(ack_with_credits(kSqPsn + 3, 4, 3));
  EXPECT_THAT(host_.pull(), SizeIs(1));
}

TEST_F(RequesterCredits, APeerThatStopsCountingIsNotHeldToItsLastWord) {
  learn(0);
  post_sends(5);
  ASSERT_THAT(host_.pull(), SizeIs(1));
  host_.receive(ack(kSqPsn + 1));  // code 31
  EXPECT_THAT(host_.pull(), SizeIs(4));
}

TEST_F(RequesterCredits, RetransmissionKeepsToTheLimitToo) {
  learn(2);
  post_sends(4);
  ASSERT_THAT(host_.pull(), SizeIs(2));
  host_.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_THAT(host_.pull(), SizeIs(2));
}

// IBTA 10.3.1.5: draining finishes what has begun. A message that waits for credits has not.
TEST_F(RequesterCredits, DrainingDoesNotWaitForAMessageThatTheCreditsHeldBack) {
  learn(1);
  post_sends(2);
  ASSERT_THAT(host_.pull(), SizeIs(1));
  QpAttributes a = default_attributes();
  a.en_sqd_async_notify = true;
  ASSERT_EQ(host_.modify(QpState::kSqd, kQpState | kQpEnSqdAsyncNotify, a), 0);
  host_.receive(ack_with_credits(kSqPsn + 1, 2, 0));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.events, testing::Contains(AsyncEvent::kSqDrained));
}

TEST_F(RequesterCredits, MessageNumbersWrap) {
  host_.post(work(WrOpcode::kSend, 1));
  ASSERT_THAT(host_.pull(), SizeIs(1));
  // As if the connection had been at 2^24-2 messages: 0xfffffe + 4 = 2.
  host_.receive(ack_with_credits(kSqPsn, 0xfffffe, 4));
  post_sends(5);
  EXPECT_THAT(host_.pull(), SizeIs(1)) << "message 2 is the last of the limit, message 3 is beyond";
}

}  // namespace
}  // namespace uroce::transport::test

// SPDX-License-Identifier: BSD-2-Clause
// Acknowledgements: which PSN, when, how many for how many requests; and receiver not ready.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

PeerPacket empty_write(uint32_t psn) {
  return request(Opcode::kRcWriteOnly, psn);
}

TEST(ResponderAck, RequestThatDoesNotAskIsNotAcknowledged) {
  ScriptedQp host;
  host.to_rts();
  host.receive(empty_write(kRqPsn));
  EXPECT_FALSE(host.qp.ack_owed());
  EXPECT_THAT(host.drain(), IsEmpty());
}

// IBTA 9.7.5.1.2, wire.md "Acknowledgements": one ACK for all requests until now.
TEST(ResponderAck, OneAckForManyRequests) {
  ScriptedQp host;
  host.to_rts();
  for (uint32_t n = 0; n < 5; ++n) host.receive(empty_write(kRqPsn + n).ack_request());
  host.receive(empty_write(kRqPsn + 5));
  EXPECT_THAT(host.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 5), HasMsn(6))));
  EXPECT_FALSE(host.qp.ack_owed());
  EXPECT_THAT(host.drain(), IsEmpty());
}

TEST(ResponderAck, UrgentWhenManyAsked) {
  ScriptedQp host;
  host.to_rts();
  uint32_t psn = kRqPsn;
  for (uint32_t n = 1; n < Responder::kAckCoalesce; ++n) host.receive(empty_write(psn++).ack_request());
  EXPECT_FALSE(host.qp.ack_urgent());
  host.receive(empty_write(psn++).ack_request());
  EXPECT_TRUE(host.qp.ack_urgent());
  host.pull_ack();
  host.receive(empty_write(psn++).ack_request());
  EXPECT_FALSE(host.qp.ack_urgent());
}

// Only memory tells the application of a WRITE without immediate data.
TEST(ResponderAck, SaysThatItIsForALoneWrite) {
  ScriptedQp host;
  host.to_rts();
  host.post_receive(1);
  host.post_receive(2);
  host.post_receive(3);
  const Buffer buffer = host.make_buffer(2 * kMtu);
  const auto lone = [&] { return host.qp.agenda(host.now).ack_of_lone_write; };
  uint32_t psn = kRqPsn;
  EXPECT_FALSE(lone());
  for (const auto& [opcode, expected] :
       {std::pair{Opcode::kRcWriteOnlyImmediate, false}, {Opcode::kRcWriteOnly, true}, {Opcode::kRcSendOnly, false}}) {
    host.receive(request(opcode, psn++).ack_request());
    EXPECT_EQ(lone(), expected) << wire::opcode_info(opcode).name;
    host.pull_ack();
    EXPECT_FALSE(lone());
  }
  host.receive(empty_write(psn).ack_request());
  EXPECT_TRUE(lone());
  host.receive(empty_write(psn));
  EXPECT_FALSE(lone()) << "the peer has asked again";
  host.pull_ack();
  host.receive(request(Opcode::kRcSendOnly, ++psn));
  host.receive(empty_write(++psn).ack_request());
  EXPECT_FALSE(lone()) << "of the SEND before it a completion tells";
  host.pull_ack();
  host.receive(empty_write(++psn).ack_request());
  host.receive(empty_write(++psn));
  EXPECT_FALSE(lone()) << "another one has come";
  host.pull_ack();
  host.receive(empty_write(psn));
  EXPECT_TRUE(host.qp.ack_owed());
  EXPECT_FALSE(lone()) << "the peer has asked again";
  host.pull_ack();
  host.receive(
      request(Opcode::kRcWriteFirst, ++psn, pattern(kMtu)).reth(buffer.iova, buffer.key, kMtu + 4).ack_request());
  EXPECT_FALSE(lone()) << "more of it comes";
  host.pull_ack();
  host.receive(request(Opcode::kRcWriteLast, ++psn, pattern(4)).ack_request());
  EXPECT_TRUE(lone());
}

// The peer may have lost the ACK and be waiting.
TEST(ResponderAck, DuplicateIsAcknowledgedEvenIfItDoesNotAsk) {
  ScriptedQp host;
  host.to_rts();
  host.receive(empty_write(kRqPsn));
  host.receive(empty_write(kRqPsn));
  EXPECT_TRUE(host.qp.ack_owed());
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn)));
}

// IBTA 9.7.5.1.1: an ACK past an unanswered READ would be an implied NAK of it.
TEST(ResponderAck, NeverOvertakesReadResponses) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(2 * kMtu);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 2 * kMtu));
  host.receive(empty_write(kRqPsn + 2).ack_request());
  EXPECT_THAT(host.pull_ack(), IsEmpty());
  ASSERT_THAT(host.pull(1), SizeIs(1));
  EXPECT_THAT(host.pull_ack(), IsEmpty());
  ASSERT_THAT(host.pull(1), SizeIs(1));
  EXPECT_THAT(host.pull_ack(), ElementsAre(IsAck(kRqPsn + 2)));
}

// A response acknowledges everything before it, so the ACK that was owed is not needed.
TEST(ResponderAck, ReadResponseReplacesTheAckBeforeIt) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  host.receive(empty_write(kRqPsn).ack_request());
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));
  EXPECT_FALSE(host.qp.ack_owed());
  EXPECT_THAT(host.drain(), ElementsAre(AllOf(HasPsn(kRqPsn + 1), HasMsn(2))));
}

TEST(ResponderAck, NakReplacesTheAckBeforeIt) {
  ScriptedQp host;
  host.to_rts();
  host.receive(empty_write(kRqPsn).ack_request());
  host.receive(empty_write(kRqPsn + 2).ack_request());
  EXPECT_THAT(host.drain(), ElementsAre(AllOf(IsNak(NakCode::kPsnSequenceError, kRqPsn + 1), HasMsn(1))));
}

// The gap closed before its NAK could leave: the NAK would only make the peer send everything again.
TEST(ResponderAck, NakThatBecameMootBeforeItLeftIsNotSent) {
  ScriptedQp host;
  host.to_rts();
  host.receive(empty_write(kRqPsn + 1).ack_request());
  host.receive(empty_write(kRqPsn).ack_request());
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn)));

  host.receive(request(Opcode::kRcSendOnly, kRqPsn + 1).ack_request());
  host.post_receive(1);
  host.receive(request(Opcode::kRcSendOnly, kRqPsn + 1).ack_request());
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 1)));
}

// wire.md "PSN": the MSN starts at 0, +1 per completed message (READ: at acceptance).
TEST(ResponderAck, MsnCountsMessagesNotPackets) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  host.post_receive(1, {buffer.sge(0, 4 * kMtu)});
  const auto msn = [&](uint32_t psn, uint32_t expected) {
    EXPECT_THAT(host.drain(), ElementsAre(AllOf(IsAck(psn), HasMsn(expected))));
  };
  host.receive(request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu)).ack_request());
  msn(kRqPsn, 0);
  host.receive(request(Opcode::kRcSendMiddle, kRqPsn + 1, pattern(kMtu)).ack_request());
  msn(kRqPsn + 1, 0);
  host.receive(request(Opcode::kRcSendLast, kRqPsn + 2, pattern(kMtu)).ack_request());
  msn(kRqPsn + 2, 1);
  host.receive(empty_write(kRqPsn + 2).ack_request());  // a duplicate completes nothing
  msn(kRqPsn + 2, 1);
  host.receive(read_request(kRqPsn + 3, buffer.iova, buffer.key, 2 * kMtu));
  EXPECT_THAT(host.drain(), ElementsAre(HasMsn(2), HasMsn(2)));
  host.receive(empty_write(kRqPsn + 5).ack_request());
  msn(kRqPsn + 5, 3);
}

// --- receiver not ready (IBTA 9.7.5.2.8; wire.md: after an RNR NAK do not also send a PSN NAK; faults.md 24) ---------

TEST(ResponderRnr, RnrNakThenSilenceThenRecovery) {
  for (const Opcode opcode : {Opcode::kRcSendOnly, Opcode::kRcSendOnlyImmediate, Opcode::kRcWriteOnlyImmediate}) {
    SCOPED_TRACE(wire::opcode_info(opcode).name);
    ScriptedQp host;
    host.to_rts();
    host.receive(empty_write(kRqPsn).ack_request());
    host.receive(request(opcode, kRqPsn + 1).ack_request());
    EXPECT_THAT(host.drain(), ElementsAre(AllOf(IsRnrNak(kRqPsn + 1, default_attributes().min_rnr_timer), HasMsn(1))));
    for (uint32_t n = 2; n < 10; ++n) {
      host.receive(request(opcode, kRqPsn + n).ack_request());
      EXPECT_THAT(host.drain(), IsEmpty());
    }
    host.post_receive(1);
    host.post_receive(2);
    host.receive(request(opcode, kRqPsn + 3).ack_request());
    EXPECT_THAT(host.drain(), IsEmpty()) << "ahead is ahead, also when there is a receive now";
    host.receive(request(opcode, kRqPsn + 1).ack_request());
    host.receive(request(opcode, kRqPsn + 2).ack_request());
    EXPECT_THAT(host.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 2), HasMsn(3))));
    EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
    EXPECT_EQ(host.qp.state(), QpState::kRts);
  }
}

TEST(ResponderRnr, EveryAttemptIsAnswered) {
  ScriptedQp host;
  host.to_rts();
  for (int i = 0; i < 5; ++i) {
    host.receive(request(Opcode::kRcSendOnly, kRqPsn));
    EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn, 12)));
  }
}

TEST(ResponderRnr, TimerCodeIsTheAttribute) {
  for (uint8_t code = 0; code < 32; ++code) {
    ScriptedQp host;
    QpAttributes a = default_attributes();
    a.min_rnr_timer = code;
    host.to_rts(a);
    host.receive(request(Opcode::kRcSendOnly, kRqPsn));
    EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn, code)));
  }
}

// A WRITE with Immediate needs its receive only at the end; the packets before it are done.
TEST(ResponderRnr, WriteWithImmediateIsRefusedAtItsLastPacketAndGoesOnThere) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(kMtu + 8);
  const Bytes before = buffer.bytes;
  const Bytes data = pattern(kMtu + 8, 66);
  host.to_rts();
  host.receive(request(Opcode::kRcWriteFirst, kRqPsn, part(data, 0, kMtu)).reth(buffer.iova, buffer.key, kMtu + 8));
  const PeerPacket last =
      request(Opcode::kRcWriteLastImmediate, kRqPsn + 1, part(data, kMtu, 8)).immediate(0x01020304).ack_request();
  host.receive(last);
  EXPECT_THAT(host.drain(), ElementsAre(IsRnrNak(kRqPsn + 1, 12)));
  EXPECT_EQ(part(buffer.bytes, kMtu, 8), part(before, kMtu, 8));
  host.post_receive(1);
  host.receive(last);
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 1)));
  EXPECT_EQ(buffer.bytes, data);
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

// READs, atomics and WRITEs take no receive.
TEST(ResponderRnr, RequestsWithoutReceiveAreNotRefused) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn, pattern(8)).reth(buffer.iova, buffer.key, 8));
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));
  host.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn + 2).atomic(buffer.iova, buffer.key, 1));
  EXPECT_THAT(host.drain(), SizeIs(2));
  EXPECT_EQ(host.count(Counter::kTxRnrNaks), 0u);
}

}  // namespace
}  // namespace uroce::transport

// SPDX-License-Identifier: BSD-2-Clause
// What a QP says of why it sends each packet (engine/io/send_reason.h), for those who look on.
#include <memory>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using io::SendReason;
using queue::WrOpcode;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

auto has_reason(SendReason reason) {
  return Field("reason", &SentPacket::reason, reason);
}

// A QP with three packets of one byte each on their way.
std::unique_ptr<ScriptedQp> sender() {
  auto host = std::make_unique<ScriptedQp>();
  QpAttributes attributes = default_attributes();
  attributes.rnr_retry = 7;
  host->to_rts(attributes);
  for (uint64_t id = 0; id < 3; ++id) host->post_inline(work(WrOpcode::kSend, id), {1});
  EXPECT_THAT(host->pull(), AllOf(SizeIs(3), Each(has_reason(SendReason::kFirst))));
  return host;
}

TEST(SendReason, PsnNak) {
  const auto made = sender();
  ScriptedQp& host = *made;
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 1));
  host.post_inline(work(WrOpcode::kSend, 3), {1});
  EXPECT_THAT(host.pull(), ElementsAre(has_reason(SendReason::kPsnNak), has_reason(SendReason::kPsnNak),
                                       has_reason(SendReason::kFirst)))
      << "what was never sent before is sent first now";
}

TEST(SendReason, RnrNak) {
  const auto made = sender();
  ScriptedQp& host = *made;
  host.receive(rnr_nak(kSqPsn, 1));
  host.advance(std::chrono::milliseconds(1));
  EXPECT_THAT(host.pull(), AllOf(SizeIs(3), Each(has_reason(SendReason::kRnrNak))));
}

TEST(SendReason, ProbesThenTimeout) {
  const auto made = sender();
  ScriptedQp& host = *made;
  host.expire();
  EXPECT_THAT(host.pull(), AllOf(SizeIs(2), Each(has_reason(SendReason::kProbe))));
  while (host.count(Counter::kTimeouts) == 0) {
    host.pull();
    host.expire();
  }
  EXPECT_THAT(host.pull(), AllOf(SizeIs(3), Each(has_reason(SendReason::kTimeout))));
}

TEST(SendReason, ImpliedNak) {
  ScriptedQp host;
  host.to_rts();
  Buffer buffer = host.make_buffer(8);
  queue::SendWqe read = rdma(WrOpcode::kRdmaRead, 1, kIova, 5);
  read.length = 8;
  host.post(read, {buffer.sge(0, 8)});
  host.post_inline(work(WrOpcode::kSend, 2), {1});
  EXPECT_THAT(host.pull(), Each(has_reason(SendReason::kFirst)));
  host.receive(ack(kSqPsn + 1));  // of the SEND: the READ's response is lost
  EXPECT_THAT(host.pull(), AllOf(SizeIs(2), Each(has_reason(SendReason::kImpliedNak))));
}

// The packet that the responder sends after `request`, which it refuses.
SendReason refusal(ScriptedQp& host, const PeerPacket& request) {
  host.receive(request);
  const std::vector<SentPacket> sent = host.drain();
  EXPECT_THAT(sent, SizeIs(1));
  return sent.empty() ? SendReason::kCount : sent[0].reason;
}
SendReason refusal(const PeerPacket& request) {
  ScriptedQp host;
  host.to_rts();
  return refusal(host, request);
}

TEST(SendReason, NaksSayWhatIsWrong) {
  const Bytes full(kMtu, 1), one(1, 1);
  EXPECT_EQ(refusal(request(Opcode::kRcWriteOnly, kRqPsn + 1)), SendReason::kNakGap);
  EXPECT_EQ(refusal(request(Opcode::kRcSendOnly, kRqPsn, one)), SendReason::kNakNoReceive);
  EXPECT_EQ(refusal(request(Opcode::kRcSendMiddle, kRqPsn, full)), SendReason::kNakOpcodeSequence);
  EXPECT_EQ(refusal(request(Opcode::kRcSendFirst, kRqPsn, one)), SendReason::kNakPacketLength);
  EXPECT_EQ(refusal(request(Opcode::kRcWriteOnly, kRqPsn, one).reth(kIova, 5, 2)), SendReason::kNakWriteLength);
  EXPECT_EQ(refusal(request(Opcode::kRcWriteOnly, kRqPsn, one).reth(kIova, 5, 1)), SendReason::kNakAccess);
  EXPECT_EQ(refusal(read_request(kRqPsn, kIova, 5, 1)), SendReason::kNakAccess);
  EXPECT_EQ(refusal(read_request(kRqPsn, kIova, 5, 0x80000001)), SendReason::kNakDepth);
  EXPECT_EQ(refusal(PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(kIova + 1, 5, 1)), SendReason::kNakAtomic);
  EXPECT_EQ(refusal(PeerPacket(Opcode::kRcFlush, kRqPsn).flush(0, 0).reth(kIova, 5, 1)), SendReason::kNakFlush);
}

TEST(SendReason, ReceiveRequestsThatDoNotFit) {
  const Bytes one(1, 1);
  ScriptedQp small;
  small.to_rts();
  small.post_receive(1);
  EXPECT_EQ(refusal(small, request(Opcode::kRcSendOnly, kRqPsn, one)), SendReason::kNakReceiveLength);
  ScriptedQp wrong;
  wrong.to_rts();
  wrong.post_receive(1, {{kIova, 1, 0x999}});
  EXPECT_EQ(refusal(wrong, request(Opcode::kRcSendOnly, kRqPsn, one)), SendReason::kNakReceiveMemory);
  ScriptedQp invalidating;
  invalidating.to_rts();
  invalidating.post_receive(1, {invalidating.make_buffer(8).sge(0, 8)});
  EXPECT_EQ(refusal(invalidating, request(Opcode::kRcSendOnlyInvalidate, kRqPsn).invalidate(0x999)),
            SendReason::kNakInvalidate);
}

TEST(SendReason, ResponderRepeatsItself) {
  ScriptedQp host;
  host.to_rts();
  const Buffer buffer = host.make_buffer(8);
  const PeerPacket read = read_request(kRqPsn, kIova, buffer.key, 8);
  host.receive(read);
  EXPECT_THAT(host.drain(), ElementsAre(has_reason(SendReason::kFirst)));
  host.receive(read);
  EXPECT_THAT(host.drain(), ElementsAre(has_reason(SendReason::kAnswerAgain)));
  const PeerPacket write = request(Opcode::kRcWriteOnly, kRqPsn + 1).ack_request();
  host.receive(write);
  EXPECT_THAT(host.drain(), ElementsAre(has_reason(SendReason::kFirst)));
  host.receive(write);
  EXPECT_THAT(host.drain(), ElementsAre(has_reason(SendReason::kAckAgain)));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn + 2).ack_request());
  EXPECT_THAT(host.drain(), ElementsAre(has_reason(SendReason::kFirst)));
}

// A READ asked for again while its responses are still leaving: those that had left go twice.
TEST(SendReason, ReadAskedForAgainInTheMiddle) {
  ScriptedQp host;
  host.to_rts();
  const Buffer buffer = host.make_buffer(4 * kMtu);
  const PeerPacket read = read_request(kRqPsn, kIova, buffer.key, 4 * kMtu);
  host.receive(read);
  EXPECT_THAT(host.pull(2), Each(has_reason(SendReason::kFirst)));
  host.receive(read);
  const auto again = has_reason(SendReason::kAnswerAgain), first = has_reason(SendReason::kFirst);
  EXPECT_THAT(host.pull(), ElementsAre(again, again, first, first));
}

TEST(SendReason, CongestionNotification) {
  ScriptedQp host;
  host.to_rts();
  host.qp.on_congestion_mark(host.now);
  io::TxPacket packet;
  ASSERT_TRUE(host.qp.pull(packet, host.now));
  EXPECT_EQ(packet.reason, SendReason::kCnp);
}

}  // namespace
}  // namespace uroce::transport

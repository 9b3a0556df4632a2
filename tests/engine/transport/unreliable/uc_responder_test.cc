// SPDX-License-Identifier: BSD-2-Clause
// What a UC QP does with requests: in order they are executed, and everything else is dropped without a word (IBTA
// 9.8.2.2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/memory/memory_access.h"
#include "tests/engine/transport/qp_pair.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

class UcResponder : public testing::Test {
 protected:
  UcResponder() { host_.to_rts(); }
  // The packets of a SEND of three.
  PeerPacket packet(Opcode opcode, uint32_t psn, uint32_t n, uint32_t seed = 1) {
    return request(opcode, psn, part(pattern(3 * kMtu, seed), n * kMtu, opcode == Opcode::kUcSendLast ? 100 : kMtu));
  }
  void message(uint32_t psn, uint32_t seed = 1) {
    host_.receive(packet(Opcode::kUcSendFirst, psn, 0, seed));
    host_.receive(packet(Opcode::kUcSendMiddle, psn + 1, 1, seed));
    host_.receive(packet(Opcode::kUcSendLast, psn + 2, 2, seed));
  }
  void post_receive(uint64_t wr_id) { host_.post_receive(wr_id, {buffer_.sge(0, 3 * kMtu)}); }
  void expect_message(uint64_t wr_id, uint32_t seed = 1) {
    const std::vector<queue::Cqe> receives = host_.receives();
    ASSERT_THAT(receives, ElementsAre(IsCompletion(wr_id, WcStatus::kSuccess)));
    EXPECT_EQ(receives[0].byte_length, 2 * kMtu + 100);
    EXPECT_EQ(receives[0].opcode, WcOpcode::kReceive);
    EXPECT_EQ(part(buffer_.bytes, 0, 2 * kMtu + 100), part(pattern(3 * kMtu, seed), 0, 2 * kMtu + 100));
  }

  ScriptedQp host_{{.type = QpType::kUc}};
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
  Buffer shared_ = [this] {
    Buffer buffer{pattern(4 * kMtu, 8), 0x9000};
    host_.add(buffer, {.access = memory::kLocalWrite | memory::kRemoteWrite});
    return buffer;
  }();
};

TEST_F(UcResponder, MessageOfSeveralPackets) {
  post_receive(1);
  message(kRqPsn);
  expect_message(1);
  EXPECT_THAT(host_.drain(), IsEmpty()) << "never an answer";
}

TEST_F(UcResponder, ImmediateAndSolicited) {
  post_receive(1);
  host_.receive(request(Opcode::kUcSendOnlyImmediate, kRqPsn, pattern(5)).immediate(0xabcd).solicited());
  const std::vector<queue::Cqe> receives = host_.receives();
  ASSERT_THAT(receives, SizeIs(1));
  EXPECT_EQ(receives[0].immediate_or_rkey, 0xabcdu);
  EXPECT_EQ(receives[0].flags, queue::kWcWithImmediate);
  EXPECT_TRUE(receives[0].solicited);
}

TEST_F(UcResponder, WriteOfSeveralPacketsAndWithImmediate) {
  const Bytes data = pattern(2 * kMtu + 3, 6);
  host_.post_receive(1);
  host_.receive(request(Opcode::kUcWriteFirst, kRqPsn, part(data, 0, kMtu)).reth(0x9000, shared_.key, 2 * kMtu + 3));
  host_.receive(request(Opcode::kUcWriteMiddle, kRqPsn + 1, part(data, kMtu, kMtu)));
  EXPECT_THAT(host_.receives(), IsEmpty());
  host_.receive(request(Opcode::kUcWriteLastImmediate, kRqPsn + 2, part(data, 2 * kMtu, 3)).immediate(7));
  EXPECT_EQ(part(shared_.bytes, 0, data.size()), data);
  const std::vector<queue::Cqe> receives = host_.receives();
  ASSERT_THAT(receives, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(receives[0].opcode, WcOpcode::kReceiveRdmaWithImmediate);
  EXPECT_EQ(receives[0].byte_length, data.size());
}

// --- gaps ------------------------------------------------------------------------------------------------------------

// The message with the gap is lost as a whole, its receive request is there for the next one.
class UcGap : public UcResponder, public testing::WithParamInterface<uint32_t> {};

TEST_P(UcGap, LosesItsMessageAndNothingElse) {
  post_receive(1);
  post_receive(2);
  for (uint32_t n = 0; n < 3; ++n) {
    constexpr Opcode kOpcodes[] = {Opcode::kUcSendFirst, Opcode::kUcSendMiddle, Opcode::kUcSendLast};
    if (n != GetParam()) host_.receive(packet(kOpcodes[n], kRqPsn + n, n));
  }
  EXPECT_THAT(host_.receives(), IsEmpty());
  message(kRqPsn + 3, 4);
  expect_message(1, 4);
  EXPECT_EQ(host_.rq.available(), 1u);
  EXPECT_GE(host_.count(Counter::kDropMessage), 1u);
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_THAT(host_.drain(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(EveryPosition, UcGap, testing::Values(0, 1, 2));

TEST_F(UcResponder, LostWholeMessageIsNotNoticedByTheNext) {
  post_receive(1);
  message(kRqPsn + 3000, 4);
  expect_message(1, 4);
  post_receive(2);
  message(kRqPsn - 5, 5);  // the PSN may be anything
  expect_message(2, 5);
}

TEST_F(UcResponder, DuplicateInsideAMessageLosesIt) {
  post_receive(1);
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  host_.receive(packet(Opcode::kUcSendMiddle, kRqPsn + 1, 1));
  host_.receive(packet(Opcode::kUcSendMiddle, kRqPsn + 1, 1));
  host_.receive(packet(Opcode::kUcSendLast, kRqPsn + 2, 2));
  EXPECT_THAT(host_.receives(), IsEmpty());
  message(kRqPsn + 3, 2);
  expect_message(1, 2);
}

TEST_F(UcResponder, GapBetweenFirstOfOneAndLastOfAnotherMessageMakesNoMessageOfThem) {
  post_receive(1);
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0, 1));
  host_.receive(packet(Opcode::kUcSendMiddle, kRqPsn + 4, 1, 2));
  host_.receive(packet(Opcode::kUcSendLast, kRqPsn + 5, 2, 2));
  EXPECT_THAT(host_.receives(), IsEmpty());
}

TEST_F(UcResponder, PsnsWrap) {
  QpAttributes a = default_attributes();
  a.rq_psn = wire::Psn(0xffffff);
  ScriptedQp host{{.type = QpType::kUc}};
  host.to_rts(a);
  Buffer buffer = host.make_buffer(2 * kMtu);
  host.post_receive(1, {buffer.sge(0, 2 * kMtu)});
  host.receive(request(Opcode::kUcSendFirst, 0xffffff, pattern(kMtu)));
  host.receive(request(Opcode::kUcSendLast, 0, pattern(kMtu)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(host.count(Counter::kRxOutOfSequence), 0u);
}

// --- out of place ----------------------------------------------------------------------------------------------------

TEST_F(UcResponder, OpcodesOutOfPlaceLoseTheMessageUnderWay) {
  constexpr Opcode kOutOfPlace[] = {Opcode::kUcSendFirst,         Opcode::kUcWriteMiddle, Opcode::kUcWriteLast,
                                    Opcode::kUcWriteFirst,        Opcode::kUcSendOnly,    Opcode::kUcWriteOnly,
                                    Opcode::kUcWriteLastImmediate};
  uint32_t psn = kRqPsn;
  for (const Opcode opcode : kOutOfPlace) {
    SCOPED_TRACE(wire::opcode_info(opcode).name);
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    post_receive(1);
    post_receive(2);
    host_.receive(packet(Opcode::kUcSendFirst, psn, 0));
    host_.receive(request(opcode, psn + 1, pattern(kMtu)).reth(0x9000, shared_.key, info.last ? kMtu : 2 * kMtu));
    host_.receive(packet(Opcode::kUcSendLast, psn + 2, 2));
    const std::vector<queue::Cqe> receives = host_.receives();
    if (opcode == Opcode::kUcSendFirst) {  // begins a message that the next packet ends
      ASSERT_THAT(receives, SizeIs(1));
      EXPECT_EQ(receives[0].byte_length, kMtu + 100);
    } else if (opcode == Opcode::kUcSendOnly) {
      ASSERT_THAT(receives, SizeIs(1));
      EXPECT_EQ(receives[0].byte_length, kMtu);
    } else {
      EXPECT_THAT(receives, IsEmpty());
    }
    ASSERT_EQ(host_.qp.state(), QpState::kRts);
    ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
    host_.to_rts();
    psn = kRqPsn;
  }
}

TEST_F(UcResponder, MiddleAndLastWithoutFirst) {
  post_receive(1);
  for (const Opcode opcode : {Opcode::kUcSendMiddle, Opcode::kUcSendLast, Opcode::kUcWriteMiddle, Opcode::kUcWriteLast,
                              Opcode::kUcSendLastImmediate}) {
    host_.receive(request(opcode, kRqPsn, pattern(kMtu)));
  }
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kDropMessage), 5u);
  EXPECT_EQ(host_.rq.available(), 1u);
}

TEST_F(UcResponder, PacketsOfOtherTransportsAreDropped) {
  post_receive(1);
  for (const Opcode opcode : {Opcode::kRcSendOnly, Opcode::kXrcSendOnly, Opcode::kUdSendOnly}) {
    host_.receive(request(opcode, kRqPsn, pattern(8)));
  }
  EXPECT_EQ(host_.count(Counter::kDropWrongTransport), 3u);
  EXPECT_THAT(host_.receives(), IsEmpty());
}

// IBTA 9.7.4.1.6.
TEST_F(UcResponder, LengthsThatDoNotFitTheirPlace) {
  post_receive(1);
  const auto drops = [this](const PeerPacket& bad) {
    const uint64_t before = host_.count(Counter::kDropMessage);
    host_.receive(bad);
    EXPECT_EQ(host_.count(Counter::kDropMessage), before + 1);
  };
  drops(request(Opcode::kUcSendFirst, kRqPsn, pattern(kMtu - 4)));
  drops(request(Opcode::kUcSendFirst, kRqPsn + 1, pattern(kMtu + 4)));
  drops(request(Opcode::kUcSendFirst, kRqPsn + 2, pattern(kMtu - 1)));  // padded
  drops(request(Opcode::kUcSendOnly, kRqPsn + 3, pattern(kMtu + 1)));
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn + 4, 0));
  drops(request(Opcode::kUcSendLast, kRqPsn + 5));
  drops(request(Opcode::kUcWriteFirst, kRqPsn + 6, pattern(kMtu)).reth(0x9000, shared_.key, kMtu));
  drops(request(Opcode::kUcWriteOnly, kRqPsn + 7, pattern(10)).reth(0x9000, shared_.key, 11));
  drops(request(Opcode::kUcWriteFirst, kRqPsn + 8, pattern(kMtu)).reth(0x9000, shared_.key, 0x80000001));
  EXPECT_EQ(shared_.bytes, pattern(4 * kMtu, 8));
  message(kRqPsn + 9);
  expect_message(1);
}

// --- receive requests ------------------------------------------------------------------------------------------------

TEST_F(UcResponder, WithoutAReceiveRequestTheMessageIsLost) {
  message(kRqPsn);
  EXPECT_EQ(host_.count(Counter::kDropNoReceive), 1u);
  EXPECT_THAT(host_.drain(), IsEmpty()) << "no RNR NAK";
  post_receive(1);
  message(kRqPsn + 3, 2);
  expect_message(1, 2);
}

// A receive request that comes in the middle is not for the message that began without.
TEST_F(UcResponder, ReceiveRequestThatComesTooLateIsForTheNextMessage) {
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  post_receive(1);
  host_.receive(packet(Opcode::kUcSendLast, kRqPsn + 1, 2));
  EXPECT_THAT(host_.receives(), IsEmpty());
  message(kRqPsn + 2, 3);
  expect_message(1, 3);
}

TEST_F(UcResponder, WriteWithImmediateWithoutReceiveRequest) {
  host_.receive(request(Opcode::kUcWriteOnlyImmediate, kRqPsn, pattern(8)).reth(0x9000, shared_.key, 8));
  EXPECT_EQ(host_.count(Counter::kDropNoReceive), 1u);
  host_.post_receive(1);
  host_.receive(request(Opcode::kUcWriteOnlyImmediate, kRqPsn + 1, pattern(8)).reth(0x9000, shared_.key, 8));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

// The receive request of a broken SEND serves a WRITE with immediate as well.
TEST_F(UcResponder, ReceiveRequestIsKeptAcrossKindsOfMessages) {
  post_receive(1);
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  host_.receive(request(Opcode::kUcWriteOnlyImmediate, kRqPsn + 2, pattern(8)).reth(0x9000, shared_.key, 8));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

TEST_F(UcResponder, LongerThanTheReceiveRequestIsLostAndTheRequestStays) {
  host_.post_receive(1, {buffer_.sge(0, kMtu + 1)});
  host_.post_receive(2, {buffer_.sge(0, kMtu)});
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  host_.receive(packet(Opcode::kUcSendMiddle, kRqPsn + 1, 1));
  host_.receive(packet(Opcode::kUcSendLast, kRqPsn + 2, 2));
  EXPECT_THAT(host_.receives(), IsEmpty()) << "the whole message is lost";
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_EQ(part(buffer_.bytes, kMtu, kMtu), part(pattern(4 * kMtu, 3), kMtu, kMtu));
  host_.receive(request(Opcode::kUcSendOnly, kRqPsn + 3, pattern(8)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess))) << "the request stayed";
}

TEST_F(UcResponder, ReceiveBufferThatMayNotBeWritten) {
  host_.post_receive(1, {{kIova, kMtu, buffer_.key + 1}});
  host_.receive(request(Opcode::kUcSendOnly, kRqPsn, pattern(4)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

// --- access ----------------------------------------------------------------------------------------------------------

TEST_F(UcResponder, WritesThatAreNotAllowedTouchNothingAndHarmNobody) {
  Buffer read_only{pattern(kMtu, 8), 0xa000}, foreign{pattern(kMtu, 8), 0xb000};
  host_.add(read_only, {.access = memory::kLocalWrite | memory::kRemoteRead});
  host_.add(foreign, {.access = memory::kLocalWrite | memory::kRemoteWrite, .pd = kPd + 1});
  const struct {
    uint64_t va;
    uint32_t rkey;
    uint32_t length;
  } bad[] = {{0x9000, shared_.key + 1, 8},
             {0xa000, read_only.key, 8},
             {0xb000, foreign.key, 8},
             {0x9000 + 4 * kMtu - 7, shared_.key, 8},
             {0x8fff, shared_.key, 8},
             {UINT64_MAX - 3, shared_.key, 8},
             {0x9000 + 3 * kMtu, shared_.key, kMtu + 1}};
  uint32_t psn = kRqPsn;
  for (const auto& [va, rkey, length] : bad) {
    const Opcode opcode = length > kMtu ? Opcode::kUcWriteFirst : Opcode::kUcWriteOnly;
    host_.receive(request(opcode, psn++, pattern(std::min(length, kMtu))).reth(va, rkey, length));
  }
  EXPECT_EQ(host_.count(Counter::kDropNoAccess), std::size(bad));
  EXPECT_EQ(shared_.bytes, pattern(4 * kMtu, 8));
  EXPECT_EQ(read_only.bytes, pattern(kMtu, 8));
  EXPECT_EQ(foreign.bytes, pattern(kMtu, 8));
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_THAT(host_.events, IsEmpty());
  EXPECT_THAT(host_.drain(), IsEmpty());
  host_.receive(request(Opcode::kUcWriteOnly, psn, pattern(8)).reth(0x9000, shared_.key, 8));
  EXPECT_EQ(part(shared_.bytes, 0, 8), pattern(8));
}

TEST_F(UcResponder, RegionThatGoesInTheMiddleOfAWriteLosesTheRest) {
  host_.receive(request(Opcode::kUcWriteFirst, kRqPsn, pattern(kMtu)).reth(0x9000, shared_.key, 2 * kMtu));
  host_.mrs.remove(shared_.key);
  host_.receive(request(Opcode::kUcWriteLast, kRqPsn + 1, pattern(kMtu)));
  EXPECT_EQ(host_.count(Counter::kDropNoAccess), 1u);
  EXPECT_EQ(part(shared_.bytes, kMtu, kMtu), part(pattern(4 * kMtu, 8), kMtu, kMtu));
}

TEST_F(UcResponder, ZeroLengthChecksNothing) {
  host_.post_receive(1);
  host_.receive(request(Opcode::kUcWriteOnlyImmediate, kRqPsn).reth(0x1, 0xdead, 0));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

TEST(UcResponderAccess, TheQpItselfMustAllowWrites) {
  ScriptedQp host{{.type = QpType::kUc}};
  QpAttributes a = default_attributes();
  a.access = 0;
  host.to_rts(a);
  Buffer buffer = host.make_buffer(kMtu);
  host.receive(request(Opcode::kUcWriteOnly, kRqPsn, pattern(8, 99)).reth(kIova, buffer.key, 8));
  EXPECT_EQ(host.count(Counter::kDropNoAccess), 1u);
  EXPECT_EQ(buffer.bytes, pattern(kMtu, 3));
}

// --- states and events -----------------------------------------------------------------------------------------------

TEST(UcResponderStates, ReceivesFromReadyToReceiveOn) {
  ScriptedQp host{{.type = QpType::kUc}};
  host.to_init();
  host.post_receive(1);
  host.receive(request(Opcode::kUcSendOnly, kRqPsn));
  EXPECT_EQ(host.count(Counter::kDropQpState), 1u);
  QpAttributes a = default_attributes();
  ASSERT_EQ(host.modify(QpState::kRtr, rtr_mask(QpType::kUc), a), 0);
  host.receive(request(Opcode::kUcSendOnly, kRqPsn));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kCommunicationEstablished));
}

TEST_F(UcResponder, ErrorStateFlushesTheReceiveInUseFirst) {
  post_receive(1);
  post_receive(2);
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.receives(),
              ElementsAre(IsCompletion(1, WcStatus::kFlushError), IsCompletion(2, WcStatus::kFlushError)));
  post_receive(3);
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(3, WcStatus::kFlushError)));
}

TEST_F(UcResponder, ResetForgetsTheMessageUnderWay) {
  post_receive(1);
  host_.receive(packet(Opcode::kUcSendFirst, kRqPsn, 0));
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  host_.to_rts();
  host_.post_receive(2, {buffer_.sge(0, 3 * kMtu)});
  host_.receive(packet(Opcode::kUcSendLast, kRqPsn, 2));
  EXPECT_THAT(host_.receives(), IsEmpty());
  message(kRqPsn + 1, 2);
  expect_message(2, 2);
}

TEST(UcShared, SharedReceiveQueueIsLeftToTheOthers) {
  ScriptedQp host{{.type = QpType::kUc, .rq_shared = true}};
  host.to_rts();
  Buffer buffer = host.make_buffer(2 * kMtu);
  host.post_receive(1, {buffer.sge(0, 2 * kMtu)});
  host.post_receive(2);
  host.receive(request(Opcode::kUcSendFirst, kRqPsn, pattern(kMtu)));
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
  EXPECT_THAT(host.events, Contains(AsyncEvent::kQpLastWqeReached));
  EXPECT_EQ(host.rq.available(), 1u);
}

TEST(UcShared, ReceiveRequestThatIsTooShortIsGivenBackAndTheQpGoesOn) {
  ScriptedQp host{{.type = QpType::kUc, .rq_shared = true}};
  host.to_rts();
  Buffer buffer = host.make_buffer(2 * kMtu);
  host.post_receive(1, {buffer.sge(0, kMtu + 1)});
  host.post_receive(2, {buffer.sge(0, 2 * kMtu)});
  host.receive(request(Opcode::kUcSendFirst, kRqPsn, pattern(kMtu)));
  host.receive(request(Opcode::kUcSendLast, kRqPsn + 1, pattern(2)));
  host.receive(request(Opcode::kUcSendOnly, kRqPsn + 2, pattern(8)));
  EXPECT_THAT(host.receives(),
              ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError), IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

// --- congestion ------------------------------------------------------------------------------------------------------

TEST_F(UcResponder, CongestionMarkIsAnsweredWithACnp) {
  host_.qp.on_congestion_mark(host_.now);
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  const wire::Bth bth = wire::Bth::parse(wire::BthView::at(packet.header.data()));
  EXPECT_EQ(bth.opcode, Opcode::kCnp);
  EXPECT_EQ(bth.dest_qp, wire::Qpn(kPeerQpn));
  EXPECT_TRUE(bth.becn);
  EXPECT_FALSE(packet.completes);
}

TEST_F(UcResponder, CnpSlowsTheSender) {
  Buffer big = [this] {
    Buffer buffer{pattern(64 * kMtu), 0x100000};
    host_.add(buffer, {.access = memory::kLocalWrite});
    return buffer;
  }();
  for (int i = 0; i < 200; ++i) {
    host_.receive(PeerPacket(Opcode::kCnp, 0));
    host_.advance(std::chrono::microseconds(10));
  }
  EXPECT_EQ(host_.count(Counter::kRxCnps), 200u);
  host_.post(work(WrOpcode::kSend, 1), {big.sge(0, 64 * kMtu)});
  const size_t at_once = host_.pull().size();
  EXPECT_LT(at_once, 64u);
  ASSERT_NE(host_.qp.deadline(), kNever) << "or nobody would ever go on";
  size_t all = at_once;
  for (int i = 0; i < 10000 && all < 64; ++i) {
    host_.expire();
    all += host_.pull().size();
  }
  EXPECT_EQ(all, 64u);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

}  // namespace
}  // namespace uroce::transport::test

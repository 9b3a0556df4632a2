// SPDX-License-Identifier: BSD-2-Clause
// SEND into receive buffers: scattering, completions, what does not fit or is not allowed, and SEND with Invalidate.
#include <functional>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcOpcode;
using queue::WcStatus;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

TEST(ResponderSend, ScattersAcrossSgesAndCompletesWithItsLength) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(1024);
  Bytes expected = buffer.bytes;
  const Bytes data = pattern(300, 66);
  std::copy_n(data.begin(), 270, expected.begin() + 500);
  std::copy_n(data.begin() + 270, 30, expected.begin() + 10);
  host.to_rts();
  host.post_receive(5, {buffer.sge(500, 270), buffer.sge(0, 0), buffer.sge(10, 100)});
  host.receive(request(Opcode::kRcSendFirst, kRqPsn, part(data, 0, kMtu)));
  EXPECT_THAT(host.receives(), IsEmpty());
  host.receive(request(Opcode::kRcSendLast, kRqPsn + 1, part(data, kMtu, 44)));
  const auto cqes = host.receives();
  ASSERT_THAT(cqes, ElementsAre(IsCompletion(5, WcStatus::kSuccess)));
  EXPECT_EQ(cqes[0].byte_length, 300u);
  EXPECT_EQ(cqes[0].opcode, WcOpcode::kReceive);
  EXPECT_EQ(cqes[0].flags, 0);
  EXPECT_EQ(buffer.bytes, expected);
}

TEST(ResponderSend, ReceivesAreUsedInOrder) {
  ScriptedQp host;
  host.to_rts();
  for (uint64_t id = 1; id <= 3; ++id) host.post_receive(id);
  for (uint32_t n = 0; n < 3; ++n) host.receive(request(Opcode::kRcSendOnly, kRqPsn + n));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess),
                                           IsCompletion(3, WcStatus::kSuccess)));
}

TEST(ResponderSend, ImmediateAndSolicitedAreInTheCompletion) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(64);
  host.to_rts();
  for (uint64_t id = 1; id <= 3; ++id) host.post_receive(id, {buffer.sge(0, 64)});
  host.receive(request(Opcode::kRcSendOnlyImmediate, kRqPsn, pattern(8)).immediate(0x01020304).solicited());
  host.receive(request(Opcode::kRcSendOnly, kRqPsn + 1, pattern(8)));
  host.receive(request(Opcode::kRcWriteOnlyImmediate, kRqPsn + 2, pattern(12))
                   .reth(buffer.iova, buffer.key, 12)
                   .immediate(0x05060708));
  const auto cqes = host.receives();
  ASSERT_THAT(cqes, SizeIs(3));
  EXPECT_EQ(cqes[0].opcode, WcOpcode::kReceive);
  EXPECT_EQ(cqes[0].flags, queue::kWcWithImmediate);
  EXPECT_EQ(cqes[0].immediate_or_rkey, 0x01020304u);
  EXPECT_TRUE(cqes[0].solicited);
  EXPECT_EQ(cqes[1].flags, 0);
  EXPECT_FALSE(cqes[1].solicited);
  EXPECT_EQ(cqes[2].opcode, WcOpcode::kReceiveRdmaWithImmediate);
  EXPECT_EQ(cqes[2].flags, queue::kWcWithImmediate);
  EXPECT_EQ(cqes[2].immediate_or_rkey, 0x05060708u);
  EXPECT_EQ(cqes[2].byte_length, 12u) << "the length that was written (IBTA 11.4.2.1)";
}

// faults.md 23; wire.md: LOC_LEN at the responder, NAK invalid request to the peer.
TEST(ResponderSend, LongerThanTheReceive) {
  struct Case {
    uint32_t room, packets;
  };
  for (const auto& [room, packets] : {Case{7, 1}, Case{0, 1}, Case{kMtu + 7, 2}, Case{kMtu - 1, 2}}) {
    SCOPED_TRACE(room);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(room + 64);
    const Bytes before = buffer.bytes;
    host.to_rts();
    host.post_receive(1, {buffer.sge(0, room)});
    host.post_receive(2);
    if (packets == 2) host.receive(request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu, 66)));
    if (host.qp.state() == QpState::kRts) {
      host.receive(
          request(packets == 2 ? Opcode::kRcSendLast : Opcode::kRcSendOnly, kRqPsn + packets - 1, pattern(8, 67)));
    }
    const uint32_t offender = room < kMtu ? kRqPsn : kRqPsn + 1;
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, offender)));
    EXPECT_THAT(host.receives(),
                ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError), IsCompletion(2, WcStatus::kFlushError)));
    EXPECT_EQ(part(buffer.bytes, room, 64), part(before, room, 64)) << "written past the receive";
    EXPECT_EQ(host.qp.state(), QpState::kErr);
  }
}

TEST(ResponderSend, ExactlyAsLongAsTheReceive) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(kMtu + 8);
  const Bytes data = pattern(kMtu + 8, 66);
  host.to_rts();
  host.post_receive(1, {buffer.sge(0, kMtu + 8)});
  host.receive(request(Opcode::kRcSendFirst, kRqPsn, part(data, 0, kMtu)));
  host.receive(request(Opcode::kRcSendLast, kRqPsn + 1, part(data, kMtu, 8)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(buffer.bytes, data);
}

// IBTA 9.7.4.2.4: the responder's own fault: NAK remote operational error, LOC_PROT.
TEST(ResponderSend, ReceiveBufferThatDoesNotAllowIt) {
  const std::vector<std::function<queue::Sge(ScriptedQp&, Buffer&)>> kSges = {
      [](ScriptedQp& host, Buffer& b) {
        b = host.make_buffer(64, memory::kLocalRead);
        return b.sge(0, 64);
      },
      [](ScriptedQp& host, Buffer& b) {
        b = host.make_buffer(64);
        return queue::Sge{b.iova, 64, b.key + 1};
      },
      [](ScriptedQp& host, Buffer& b) {
        b = host.make_buffer(64);
        return b.sge(60, 8);
      },
      [](ScriptedQp& host, Buffer& b) {
        b.bytes = pattern(64);
        host.add(b, {.access = memory::kLocalWrite, .pd = kPd + 1});
        return b.sge(0, 64);
      }};
  for (size_t i = 0; i < kSges.size(); ++i) {
    SCOPED_TRACE(i);
    ScriptedQp host;
    Buffer buffer;
    const queue::Sge sge = kSges[i](host, buffer);
    const Bytes before = buffer.bytes;
    host.to_rts();
    host.post_receive(1, {sge});
    host.receive(request(Opcode::kRcSendOnly, kRqPsn, pattern(8, 66)));
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
    EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
    EXPECT_EQ(buffer.bytes, before);
  }
}

// --- SEND with Invalidate (IBTA 9.4.1.1.3; wire.md: type 2 windows or fast-registered regions only) ------------------

TEST(ResponderInvalidate, EndsTheRegionAndSaysSo) {
  ScriptedQp host;
  Buffer window{pattern(8)};
  host.add_window(window);
  host.to_rts();
  host.post_receive(1);
  host.receive(request(Opcode::kRcSendOnlyInvalidate, kRqPsn).invalidate(window.key).ack_request());
  const auto cqes = host.receives();
  ASSERT_THAT(cqes, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(cqes[0].flags, queue::kWcWithInvalidate);
  EXPECT_EQ(cqes[0].immediate_or_rkey, window.key);
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn)));
  host.receive(read_request(kRqPsn + 1, window.iova, window.key, 8));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn + 1)));
}

TEST(ResponderInvalidate, WhatAPeerMustNotEndStaysAndTheRequestIsRefused) {
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    ScriptedQp host;
    Buffer plain = host.make_buffer(8);
    Buffer foreign{pattern(8)};
    host.add_window(foreign, kPd + 1);
    host.to_rts();
    host.post_receive(1);
    const uint32_t key = i == 0 ? plain.key : i == 1 ? foreign.key : plain.key + 1;
    host.receive(request(Opcode::kRcSendOnlyInvalidate, kRqPsn).invalidate(key));
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    ASSERT_THAT(host.receives(), SizeIs(1));
    EXPECT_EQ(host.mrs.translate_remote(plain.key, kPd, 0, plain.iova, 8, kAllRemote).result,
              memory::AccessResult::kOk);
    EXPECT_EQ(host.mrs.translate_remote(foreign.key, kPd + 1, kQpn, foreign.iova, 8, kAllRemote).result,
              memory::AccessResult::kOk);
  }
}

}  // namespace
}  // namespace uroce::transport

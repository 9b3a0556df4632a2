// SPDX-License-Identifier: BSD-2-Clause
// The send queue of UC and UD: packets, and completions that come when the bytes are made, each once and in order.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;
using testing::Pointwise;
using testing::SizeIs;
using wire::Opcode;

class UcSender : public testing::Test {
 protected:
  UcSender() { host_.to_rts(); }
  // A SEND of `size` bytes from the buffer's beginning.
  void send(uint64_t wr_id, uint32_t size, uint8_t flags = queue::kSignaled) {
    host_.post(work(WrOpcode::kSend, wr_id, flags), {buffer_.sge(0, size)});
  }
  ScriptedQp host_{{.type = QpType::kUc}};
  Buffer buffer_ = host_.make_buffer(8 * kMtu);
};

// --- packets ---------------------------------------------------------------------------------------------------------

// Whether they do is the packet I/O's matter, which asks the peers (engine/io/udp/run_peers.h).
TEST_F(UcSender, PacketsMayLeaveInRuns) {
  send(1, 3 * kMtu);
  io::TxPacket packet;
  for (int i = 0; i < 3; ++i) {
    packet.alone = true;
    ASSERT_TRUE(host_.qp.pull(packet, host_.now));
    EXPECT_FALSE(packet.alone);
  }
}

struct Kind {
  WrOpcode opcode;
  Opcode first, middle, last, only;
  bool write, immediate;
};
constexpr Kind kKinds[] = {
    {WrOpcode::kSend, Opcode::kUcSendFirst, Opcode::kUcSendMiddle, Opcode::kUcSendLast, Opcode::kUcSendOnly, false,
     false},
    {WrOpcode::kSendWithImmediate, Opcode::kUcSendFirst, Opcode::kUcSendMiddle, Opcode::kUcSendLastImmediate,
     Opcode::kUcSendOnlyImmediate, false, true},
    {WrOpcode::kRdmaWrite, Opcode::kUcWriteFirst, Opcode::kUcWriteMiddle, Opcode::kUcWriteLast, Opcode::kUcWriteOnly,
     true, false},
    {WrOpcode::kRdmaWriteWithImmediate, Opcode::kUcWriteFirst, Opcode::kUcWriteMiddle, Opcode::kUcWriteLastImmediate,
     Opcode::kUcWriteOnlyImmediate, true, true},
};

class UcSenderKinds : public testing::TestWithParam<std::tuple<Kind, uint32_t>> {};

TEST_P(UcSenderKinds, OpcodesHeadersPsnsAndPayload) {
  const auto& [kind, size] = GetParam();
  ScriptedQp host{{.type = QpType::kUc}};
  host.to_rts();
  Buffer buffer = host.make_buffer(4 * kMtu);
  queue::SendWqe wqe = rdma(kind.opcode, 1, 0x1000, 0x55, queue::kSignaled | queue::kSolicited);
  wqe.immediate_or_rkey = 0xabcd;
  const uint32_t half = size / 2;
  host.post(wqe, {buffer.sge(0, half), buffer.sge(half, size - half)});
  const std::vector<SentPacket> sent = host.pull();
  const uint32_t count = packet_count(size, kMtu);
  ASSERT_THAT(sent, SizeIs(count));
  for (uint32_t n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    const bool last = n + 1 == count;
    const Opcode opcode = count == 1 ? kind.only : n == 0 ? kind.first : last ? kind.last : kind.middle;
    const Bytes payload = part(buffer.bytes, n * kMtu, last ? size - n * kMtu : kMtu);
    EXPECT_THAT(sent[n], IsRequest(opcode, kSqPsn + n, payload));
    EXPECT_THAT(sent[n], Not(AsksForAck())) << "nobody answers";
    EXPECT_EQ(sent[n].headers.bth.solicited, last && (!kind.write || kind.immediate));
    EXPECT_EQ(sent[n].headers.info->has_reth, kind.write && n == 0);
    if (n == 0 && kind.write) {
      EXPECT_THAT(sent[n], HasReth(0x1000, 0x55, size));
    }
    if (last && kind.immediate) {
      EXPECT_THAT(sent[n], HasImmediate(0xabcd));
    }
  }
  const std::vector<queue::Cqe> sends = host.sends();
  ASSERT_THAT(sends, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(sends[0].opcode, kind.write ? WcOpcode::kRdmaWrite : WcOpcode::kSend);
  EXPECT_EQ(host.count(Counter::kTxRequests), count);
}

INSTANTIATE_TEST_SUITE_P(All, UcSenderKinds,
                         testing::Combine(testing::ValuesIn(kKinds),
                                          testing::Values(0, 1, 3, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 3 * kMtu - 2)));

TEST_F(UcSender, PsnsGoOnFromMessageToMessageAndWrap) {
  ScriptedQp host{{.type = QpType::kUc}};
  QpAttributes a = default_attributes();
  a.sq_psn = wire::Psn(0xfffffe);
  host.to_rts(a);
  Buffer buffer = host.make_buffer(2 * kMtu);
  for (uint64_t i = 0; i < 2; ++i) host.post(work(WrOpcode::kSend, i), {buffer.sge(0, 2 * kMtu)});
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(0xfffffe), HasPsn(0xffffff), HasPsn(0), HasPsn(1)));
}

TEST_F(UcSender, InlineDataIsTakenFromTheQueue) {
  const Bytes data = pattern(100, 5);
  host_.post_inline(work(WrOpcode::kSend, 1), data);
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kUcSendOnly, kSqPsn, data)));
}

TEST(UcSenderStates, NothingIsSentBeforeReadyToSend) {
  ScriptedQp host{{.type = QpType::kUc}};
  host.to_rtr();
  host.post(work(WrOpcode::kSend, 1));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), IsEmpty());
  ASSERT_EQ(host.modify(QpState::kRts, rts_mask(QpType::kUc)), 0);
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), SizeIs(1));
}

// --- completions -----------------------------------------------------------------------------------------------------

TEST_F(UcSender, CompletesWhenTheBytesOfTheLastPacketAreMade) {
  send(1, 3 * kMtu);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(3));
  EXPECT_FALSE(waiting[0].completes || waiting[1].completes);
  ASSERT_TRUE(waiting[2].completes);
  EXPECT_THAT(host_.sends(), IsEmpty()) << "the application must not write to its buffer yet";
  host_.qp.on_taken(waiting[2], host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  host_.qp.on_taken(waiting[2], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty()) << "once";
}

TEST_F(UcSender, UnsignaledCompletesSilentlyAndFreesItsSlot) {
  send(1, 10, 0);
  send(2, 10);
  EXPECT_THAT(host_.pull(), SizeIs(2));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_EQ(host_.sq.tail(), host_.sq.head());
}

// The packets of one queue may wait in different places (UD: on the wire and to ourselves).
TEST_F(UcSender, BytesMadeOutOfTurnCompleteInOrderAndNoneTooEarly) {
  for (uint64_t i = 0; i < 3; ++i) send(i, 10);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(3));
  host_.qp.on_taken(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty()) << "the first one's bytes are not made yet";
  host_.qp.on_taken(waiting[0], host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(0, WcStatus::kSuccess), IsCompletion(1, WcStatus::kSuccess)));
  host_.qp.on_taken(waiting[2], host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, WcStatus::kSuccess)));
}

// --- errors ----------------------------------------------------------------------------------------------------------

// IBTA 10.3.1.2, wire.md "Completion status".
TEST_F(UcSender, ErrorStopsTheSendQueueAlone) {
  send(1, 10);
  host_.post(work(WrOpcode::kRdmaRead, 2), {buffer_.sge(0, 10)});
  send(3, 10, 0);
  host_.post_receive(9, {buffer_.sge(0, kMtu)});
  EXPECT_THAT(host_.pull(), SizeIs(1));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalQpOperationError),
                          IsCompletion(3, WcStatus::kFlushError)));
  send(4, 10);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(4, WcStatus::kFlushError))) << "posted later";
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
  host_.receive(request(Opcode::kUcSendOnly, kRqPsn, pattern(20)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(9, WcStatus::kSuccess))) << "receiving goes on";
  EXPECT_THAT(host_.events, testing::Not(testing::Contains(AsyncEvent::kQpFatal)));
}

TEST_F(UcSender, AfterAnErrorModifyToRtsMakesItWorkAgain) {
  host_.post(work(WrOpcode::kFetchAdd, 1), {buffer_.sge(0, 8)});
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), SizeIs(1));
  QpAttributes a = default_attributes();
  a.current_state = QpState::kSqe;
  ASSERT_EQ(host_.modify(QpState::kRts, kQpState | kQpCurrentState, a), 0);
  send(2, kMtu + 1);
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kUcSendFirst, kSqPsn), HasPsn(kSqPsn + 1)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, WcStatus::kSuccess)));
}

// The one that failed waits until the bytes of those before it are made.
TEST_F(UcSender, ErrorWaitsForWhatPrecedesIt) {
  send(1, 10);
  host_.post(work(WrOpcode::kSend, 2), {{kIova, 10, buffer_.key + 1}});
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(1));
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  host_.qp.on_taken(waiting[0], host_.now);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

class UcSenderRefuses : public testing::TestWithParam<WrOpcode> {};

TEST_P(UcSenderRefuses, OperationsThatNeedAnAnswer) {
  ScriptedQp host{{.type = QpType::kUc}};
  host.to_rts();
  Buffer buffer = host.make_buffer(64);
  host.post(work(GetParam(), 1, 0), {buffer.sge(0, 8)});
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
}

INSTANTIATE_TEST_SUITE_P(All, UcSenderRefuses,
                         testing::Values(WrOpcode::kRdmaRead, WrOpcode::kCompareSwap, WrOpcode::kFetchAdd,
                                         WrOpcode::kSendWithInvalidate, WrOpcode::kFlush, WrOpcode::kAtomicWrite,
                                         WrOpcode{200}));

TEST_F(UcSender, MessageThatIsTooLong) {
  host_.post(work(WrOpcode::kSend, 1), {{kIova, 0x80000000, buffer_.key}});
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
}

// Its key is found bad in the middle: what has left has left.
TEST_F(UcSender, BadKeyInTheMiddleOfAMessage) {
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, kMtu), {kIova, kMtu, buffer_.key + 1}});
  send(2, 10);
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kUcSendFirst, kSqPsn)));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError), IsCompletion(2, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

// --- memory that the application takes away --------------------------------------------------------------------------

TEST_F(UcSender, UnreadableMemoryFailsItsRequestOnce) {
  send(1, 2 * kMtu);
  send(2, 10);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(3));
  host_.qp.on_unreadable(waiting[0], host_.now);
  host_.qp.on_unreadable(waiting[1], host_.now);
  host_.qp.on_taken(waiting[2], host_.now);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError), IsCompletion(2, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

TEST_F(UcSender, UnreadableInTheMiddleOfAMessageBeingSent) {
  send(1, 3 * kMtu);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting(2);
  host_.qp.on_unreadable(waiting[1], host_.now);
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
}

// Found before the bytes of an earlier one are made: nothing is lost, the order stays.
TEST_F(UcSender, UnreadableOutOfTurn) {
  for (uint64_t i = 0; i < 3; ++i) send(i, 10);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  host_.qp.on_unreadable(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  host_.qp.on_taken(waiting[2], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  host_.qp.on_taken(waiting[0], host_.now);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(0, WcStatus::kSuccess), IsCompletion(1, WcStatus::kLocalProtectionError),
                          IsCompletion(2, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

TEST_F(UcSender, TheEarliestOfTwoUnreadableOnesFails) {
  for (uint64_t i = 0; i < 3; ++i) send(i, 10);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  host_.qp.on_unreadable(waiting[2], host_.now);
  host_.qp.on_unreadable(waiting[1], host_.now);
  host_.qp.on_taken(waiting[0], host_.now);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(0, WcStatus::kSuccess), IsCompletion(1, WcStatus::kLocalProtectionError),
                          IsCompletion(2, WcStatus::kFlushError)));
}

// --- packets given out when the queue ends ---------------------------------------------------------------------------

TEST_F(UcSender, ErrorStateFlushesWhatWaitsForItsBytes) {
  send(1, 10);
  send(2, 2 * kMtu);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting(2);
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kFlushError), IsCompletion(2, WcStatus::kFlushError)));
  host_.qp.on_taken(waiting[0], host_.now);
  host_.qp.on_unreadable(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  send(3, 10);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, WcStatus::kFlushError)));
}

TEST_F(UcSender, WhatIsToldOfPacketsFromBeforeResetChangesNothing) {
  send(1, 10);
  send(2, 2 * kMtu);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting(2);
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  host_.to_rts();
  for (uint64_t i = 3; i < 6; ++i) send(i, 10);
  const std::vector<io::TxPacket> anew = host_.pull_waiting();
  host_.qp.on_taken(waiting[0], host_.now);
  host_.qp.on_unreadable(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  for (const io::TxPacket& packet : anew) host_.qp.on_taken(packet, host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, WcStatus::kSuccess), IsCompletion(4, WcStatus::kSuccess),
                                         IsCompletion(5, WcStatus::kSuccess)));
}

TEST_F(UcSender, WhatIsToldOfPacketsFromBeforeAnErrorChangesNothing) {
  send(1, 10);
  send(2, 10);
  const std::vector<io::TxPacket> waiting = host_.pull_waiting();
  host_.qp.on_unreadable(waiting[0], host_.now);
  EXPECT_THAT(host_.sends(), SizeIs(2));
  ASSERT_EQ(host_.modify(QpState::kRts, kQpState), 0);
  send(3, 10);
  const std::vector<io::TxPacket> anew = host_.pull_waiting();
  host_.qp.on_taken(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  host_.qp.on_taken(anew[0], host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, WcStatus::kSuccess)));
}

// --- SQD -------------------------------------------------------------------------------------------------------------

TEST_F(UcSender, DrainingFinishesTheMessageAndWaitsForItsBytes) {
  send(1, 3 * kMtu);
  send(2, 10);
  std::vector<io::TxPacket> waiting = host_.pull_waiting(1);
  QpAttributes a = default_attributes();
  a.en_sqd_async_notify = true;
  ASSERT_EQ(host_.modify(QpState::kSqd, kQpState | kQpEnSqdAsyncNotify, a), 0);
  EXPECT_THAT(host_.events, IsEmpty());
  waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(2)) << "no new message";
  EXPECT_THAT(host_.events, IsEmpty());
  host_.qp.on_taken(waiting[1], host_.now);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_THAT(host_.events, ElementsAre(AsyncEvent::kSqDrained));
  ASSERT_EQ(host_.modify(QpState::kRts, kQpState), 0);
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kUcSendOnly, kSqPsn + 3)));
  // Not asked for this time.
  ASSERT_EQ(host_.modify(QpState::kSqd, kQpState), 0);
  EXPECT_THAT(host_.events, SizeIs(1));
}

// --- local operations ------------------------------------------------------------------------------------------------

TEST_F(UcSender, LocalOperationWaitsForTheBytesOfWhatPrecedesIt) {
  Buffer window{pattern(64)};
  host_.add_window(window);
  send(1, 10, 0);
  queue::SendWqe invalidate = work(WrOpcode::kLocalInvalidate, 2);
  invalidate.immediate_or_rkey = window.key;
  host_.post(invalidate);
  send(3, 10);
  std::vector<io::TxPacket> waiting = host_.pull_waiting();
  ASSERT_THAT(waiting, SizeIs(1)) << "nothing passes it";
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
  EXPECT_THAT(host_.sends(), IsEmpty());
  host_.qp.on_taken(waiting[0], host_.now);
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kUcSendOnly, kSqPsn + 1)));
  const std::vector<queue::Cqe> sends = host_.sends();
  ASSERT_THAT(sends, ElementsAre(IsCompletion(2, WcStatus::kSuccess), IsCompletion(3, WcStatus::kSuccess)));
  EXPECT_EQ(sends[0].opcode, WcOpcode::kLocalInvalidate);
}

TEST_F(UcSender, FailingBindEndsTheSendQueueAlone) {
  host_.post(work(WrOpcode::kBindMw, 1, 0));
  send(2, 10);
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kMwBindError), IsCompletion(2, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

// --- UD --------------------------------------------------------------------------------------------------------------

class UdSender : public testing::Test {
 protected:
  UdSender() { host_.to_rts(); }
  ScriptedQp host_{{.type = QpType::kUd}};
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
};

TEST_F(UdSender, OnePacketWithADeth) {
  for (const uint32_t size : {0u, 1u, kMtu}) {
    SCOPED_TRACE(size);
    host_.post(datagram(1, queue::kSignaled | queue::kSolicited), {buffer_.sge(0, size)});
    const std::vector<SentPacket> sent = host_.pull();
    ASSERT_THAT(sent, SizeIs(1));
    EXPECT_THAT(sent[0], AllOf(HasOpcode(Opcode::kUdSendOnly), HasPayload(part(buffer_.bytes, 0, size)), IsSolicited(),
                               Not(AsksForAck())));
    EXPECT_EQ(sent[0].headers.bth.dest_qp, wire::Qpn(kPeerQpn));
    EXPECT_EQ(sent[0].headers.deth, (wire::Deth{kQkey, wire::Qpn(kQpn)}));
    EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  }
}

TEST_F(UdSender, ImmediateAndPsns) {
  queue::SendWqe wqe = datagram(1, queue::kSignaled, WrOpcode::kSendWithImmediate);
  wqe.immediate_or_rkey = 0x77;
  host_.post(wqe, {buffer_.sge(0, 5)});
  host_.post(datagram(2));
  EXPECT_THAT(host_.pull(), ElementsAre(AllOf(IsRequest(Opcode::kUdSendOnlyImmediate, kSqPsn), HasImmediate(0x77)),
                                        IsRequest(Opcode::kUdSendOnly, kSqPsn + 1)));
}

// IBTA 10.2.5: an application cannot name a controlled Q_Key; its QP's own goes out.
TEST_F(UdSender, ControlledQkeyIsTheQpsOwn) {
  queue::SendWqe wqe = datagram(1);
  wqe.ud.remote_qkey = 0x80010000;
  host_.post(wqe);
  wqe.ud.remote_qkey = 0x7fffffff;
  host_.post(wqe);
  const std::vector<SentPacket> sent = host_.pull();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].headers.deth.qkey, kQkey);
  EXPECT_EQ(sent[1].headers.deth.qkey, 0x7fffffffu);
}

TEST_F(UdSender, EveryRequestHasItsOwnAddress) {
  for (uint32_t i = 1; i <= 3; ++i) {
    queue::SendWqe wqe = datagram(i);
    wqe.ud.address_handle = 100 + i;
    host_.post(wqe);
  }
  for (uint32_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(host_.qp.next_address_handle(), 100 + i);
    const std::vector<io::TxPacket> one = host_.pull_waiting(1);
    ASSERT_THAT(one, SizeIs(1));
    EXPECT_EQ(one[0].address_handle, 100 + i);
  }
  EXPECT_EQ(host_.qp.next_address_handle(), 0u);
}

TEST_F(UdSender, LongerThanThePathMtu) {
  host_.post(datagram(1), {buffer_.sge(0, kMtu + 1)});
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
  EXPECT_EQ(host_.qp.state(), QpState::kSqe);
}

// Binding and invalidating are of connected QPs as well: what a datagram WQE has in their place is an address.
TEST_F(UdSender, NothingButSends) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImmediate, WrOpcode::kRdmaRead,
                                WrOpcode::kFetchAdd, WrOpcode::kSendWithInvalidate, WrOpcode::kLocalInvalidate,
                                WrOpcode::kBindMw, WrOpcode::kFlush, WrOpcode::kAtomicWrite}) {
    SCOPED_TRACE(int{static_cast<uint8_t>(opcode)});
    host_.post(work(opcode, 1, 0));
    host_.post(datagram(2));
    EXPECT_EQ(host_.qp.next_address_handle(), 0u);
    EXPECT_THAT(host_.pull(), IsEmpty());
    EXPECT_THAT(host_.sends(),
                ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError), IsCompletion(2, WcStatus::kFlushError)));
    ASSERT_EQ(host_.modify(QpState::kRts, kQpState), 0);
  }
}

}  // namespace
}  // namespace uroce::transport::test

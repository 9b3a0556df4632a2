// SPDX-License-Identifier: BSD-2-Clause
// XRC: the initiator has the requesting half of an RC QP and names a shared receive queue in every request, the target
// has the responding half (IBTA annex A14).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

constexpr uint32_t kXrcd = 3;
constexpr uint32_t kSrqn = 0x51, kOtherSrqn = 0x52, kForeignSrqn = 0x53;
constexpr uint32_t kSrqPd = 21, kOtherPd = 22;

MATCHER_P(HasSrqn, srqn, "") {
  return arg.headers.info->has_xrceth && arg.headers.xrceth.srqn == static_cast<uint32_t>(srqn);
}
auto IsXrcAck(uint32_t psn) {
  return AllOf(HasOpcode(Opcode::kXrcAcknowledge), HasPsn(psn), HasAckSyndrome());
}
auto IsXrcNak(NakCode code, uint32_t psn) {
  return AllOf(HasOpcode(Opcode::kXrcAcknowledge), HasPsn(psn),
               HasSyndrome(static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code))));
}

// --- initiator -------------------------------------------------------------------------------------------------------

class XrcInitiator : public testing::Test {
 protected:
  XrcInitiator() { host_.to_rts(); }
  static queue::SendWqe to(uint32_t srqn, queue::SendWqe wqe) {
    wqe.set_xrc_srqn(srqn);
    return wqe;
  }
  ScriptedQp host_{{.type = QpType::kXrcInitiator}};
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
};

TEST_F(XrcInitiator, EveryPacketNamesTheSharedReceiveQueue) {
  queue::SendWqe swap = to(0x51, rdma(WrOpcode::kCompareSwap, 4, 0x2000, 9));
  queue::SendWqe write = to(0x52, rdma(WrOpcode::kRdmaWriteWithImmediate, 2, 0x1000, 8));
  host_.post(to(0x51, work(WrOpcode::kSend, 1)), {buffer_.sge(0, 3 * kMtu)});
  host_.post(write, {buffer_.sge(0, kMtu + 1)});
  host_.post(to(0x53, rdma(WrOpcode::kRdmaRead, 3, 0x1000, 8)), {buffer_.sge(0, 2 * kMtu)});
  host_.post(swap, {buffer_.sge(0, 8)});
  queue::SendWqe invalidate = to(0xfffffe, work(WrOpcode::kSendWithInvalidate, 5));
  invalidate.immediate_or_rkey = 0x99;
  host_.post(invalidate, {buffer_.sge(0, 4)});
  EXPECT_THAT(
      host_.pull(),
      ElementsAre(AllOf(IsRequest(Opcode::kXrcSendFirst, kSqPsn, part(buffer_.bytes, 0, kMtu)), HasSrqn(0x51)),
                  AllOf(IsRequest(Opcode::kXrcSendMiddle, kSqPsn + 1), HasSrqn(0x51)),
                  AllOf(IsRequest(Opcode::kXrcSendLast, kSqPsn + 2), HasSrqn(0x51)),
                  AllOf(IsRequest(Opcode::kXrcWriteFirst, kSqPsn + 3), HasSrqn(0x52), HasReth(0x1000, 8u, kMtu + 1)),
                  AllOf(IsRequest(Opcode::kXrcWriteLastImmediate, kSqPsn + 4), HasSrqn(0x52)),
                  AllOf(IsRequest(Opcode::kXrcReadRequest, kSqPsn + 5), HasSrqn(0x53), HasReth(0x1000, 8u, 2 * kMtu)),
                  AllOf(IsRequest(Opcode::kXrcCompareSwap, kSqPsn + 7), HasSrqn(0x51)),
                  AllOf(IsRequest(Opcode::kXrcSendOnlyInvalidate, kSqPsn + 8), HasSrqn(0xfffffe), HasIeth(0x99u))));
}

TEST_F(XrcInitiator, CompletesByTheAnswersOfATarget) {
  host_.post(to(1, work(WrOpcode::kSend, 1)), {buffer_.sge(0, 4)});
  host_.post(to(1, rdma(WrOpcode::kRdmaRead, 2, 0x1000, 8)), {buffer_.sge(0, kMtu + 1)});
  host_.post(to(1, rdma(WrOpcode::kFetchAdd, 3, 0x1000, 8)), {buffer_.sge(2 * kMtu, 8)});
  EXPECT_THAT(host_.pull(), SizeIs(3));
  host_.receive(PeerPacket(Opcode::kXrcAcknowledge, kSqPsn).aeth(0x1f));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  host_.receive(read_response(Opcode::kXrcReadResponseFirst, kSqPsn + 1, pattern(kMtu, 8)));
  host_.receive(read_response(Opcode::kXrcReadResponseLast, kSqPsn + 2, pattern(1, 9)));
  host_.receive(PeerPacket(Opcode::kXrcAtomicAcknowledge, kSqPsn + 3).aeth(0x1f).original(5));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, WcStatus::kSuccess), IsCompletion(3, WcStatus::kSuccess)));
  EXPECT_EQ(part(buffer_.bytes, 0, kMtu), pattern(kMtu, 8));
}

TEST_F(XrcInitiator, LostPacketsAreSentAgainWithTheirQueue) {
  host_.post(to(0x51, work(WrOpcode::kSend, 1)), {buffer_.sge(0, 2 * kMtu)});
  host_.post(to(0x52, work(WrOpcode::kSend, 2)), {buffer_.sge(0, 4)});
  host_.pull();
  host_.receive(
      PeerPacket(Opcode::kXrcAcknowledge, kSqPsn + 1).aeth(0x60 | static_cast<uint8_t>(NakCode::kPsnSequenceError)));
  EXPECT_THAT(host_.pull(), ElementsAre(AllOf(IsRequest(Opcode::kXrcSendLast, kSqPsn + 1), HasSrqn(0x51)),
                                        AllOf(IsRequest(Opcode::kXrcSendOnly, kSqPsn + 2), HasSrqn(0x52))));
}

// It has no responder.
TEST_F(XrcInitiator, DropsRequestsAndThePacketsOfOtherTransports) {
  host_.post(to(1, work(WrOpcode::kSend, 1)), {buffer_.sge(0, 4)});
  host_.pull();
  for (const Opcode opcode : {Opcode::kXrcSendOnly, Opcode::kXrcWriteOnly, Opcode::kRcSendOnly, Opcode::kUcSendOnly}) {
    host_.receive(request(opcode, kRqPsn, pattern(4)));
  }
  host_.receive(PeerPacket(Opcode::kXrcReadRequest, kRqPsn).reth(kIova, buffer_.key, 4));
  host_.receive(PeerPacket(Opcode::kXrcFetchAdd, kRqPsn).atomic(kIova, buffer_.key, 4));
  host_.receive(ack(kSqPsn));  // RC's
  EXPECT_EQ(host_.count(Counter::kDropWrongTransport), 7u);
  EXPECT_THAT(host_.drain(), IsEmpty());
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_THAT(host_.events, IsEmpty());
}

TEST_F(XrcInitiator, HasNeitherFlushNorAtomicWrite) {
  for (const WrOpcode opcode : {WrOpcode::kFlush, WrOpcode::kAtomicWrite}) {
    ScriptedQp host{{.type = QpType::kXrcInitiator}};
    host.to_rts();
    host.post(to(1, rdma(opcode, 1, 0x1000, 8)));
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
  }
}

TEST_F(XrcInitiator, ErrorFlushesTheSendQueueAndHasNoLastWqe) {
  host_.post(to(1, work(WrOpcode::kSend, 1)), {buffer_.sge(0, 4)});
  host_.pull();
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
  EXPECT_THAT(host_.events, IsEmpty());
}

// --- target ----------------------------------------------------------------------------------------------------------

class XrcTarget : public testing::Test {
 protected:
  XrcTarget() {
    host_.srqs.targets = {{{kXrcd, kSrqn}, {&srq_, &cq_, kSrqPd, kSrqPd}},
                          {{kXrcd, kOtherSrqn}, {&other_srq_, &other_cq_, kOtherPd, kOtherPd}},
                          {{kXrcd + 1, kForeignSrqn}, {&srq_, &cq_, kSrqPd, kSrqPd}}};
    host_.to_rtr();
    host_.add(buffer_, {.access = memory::kLocalWrite | kAllRemote, .pd = kSrqPd});
    host_.add(other_, {.access = memory::kLocalWrite | kAllRemote, .pd = kOtherPd});
  }
  void post(queue::ReceiveQueue& srq, uint64_t wr_id, const std::vector<queue::Sge>& sges) {
    ASSERT_TRUE(srq.post(wr_id, sges));
  }
  static PeerPacket to(uint32_t srqn, PeerPacket packet) { return packet.srqn(srqn); }
  static PeerPacket read(uint32_t psn, const Buffer& of, uint32_t offset, uint32_t length) {
    return PeerPacket(Opcode::kXrcReadRequest, psn).reth(of.iova + offset, of.key, length).ack_request();
  }

  queue::ReceiveQueue srq_{16, 4}, other_srq_{16, 4};
  queue::CompletionQueue cq_{64, nullptr}, other_cq_{64, nullptr};
  ScriptedQp host_{{.type = QpType::kXrcTarget, .xrcd = kXrcd}};
  Buffer buffer_{pattern(4 * kMtu, 3)};
  Buffer other_{pattern(4 * kMtu, 4), 0x5000};
};

TEST_F(XrcTarget, MessagesGoToTheQueueThatTheyName) {
  post(srq_, 1, {buffer_.sge(0, kMtu)});
  post(other_srq_, 2, {other_.sge(0, kMtu)});
  host_.receive(to(kOtherSrqn, request(Opcode::kXrcSendOnly, kRqPsn, pattern(10))).ack_request());
  host_.receive(to(kSrqn, request(Opcode::kXrcSendOnlyImmediate, kRqPsn + 1, pattern(11))).immediate(5).ack_request());
  EXPECT_THAT(ScriptedQp::take(other_cq_), ElementsAre(IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_THAT(ScriptedQp::take(cq_), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(part(other_.bytes, 0, 10), pattern(10));
  EXPECT_EQ(part(buffer_.bytes, 0, 11), pattern(11));
  EXPECT_THAT(host_.receives(), IsEmpty()) << "the QP has no completion queue of its own";
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsXrcAck(kRqPsn + 1), HasSyndrome(uint8_t{0x1f}), HasMsn(2))))
      << "no credits with shared receive queues";
}

TEST_F(XrcTarget, MessageOfSeveralPackets) {
  post(srq_, 1, {buffer_.sge(0, 3 * kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendFirst, kRqPsn, pattern(kMtu, 1))));
  host_.receive(to(kSrqn, request(Opcode::kXrcSendMiddle, kRqPsn + 1, pattern(kMtu, 2))));
  host_.receive(to(kSrqn, request(Opcode::kXrcSendLast, kRqPsn + 2, pattern(9, 3))));
  const std::vector<queue::Cqe> receives = ScriptedQp::take(cq_);
  ASSERT_THAT(receives, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(receives[0].byte_length, 2 * kMtu + 9);
}

TEST_F(XrcTarget, UnknownQueueOrOneOfAnotherDomainIsAnInvalidRequest) {
  for (const uint32_t srqn : {0u, 0x999u, kForeignSrqn}) {
    SCOPED_TRACE(srqn);
    ScriptedQp host{{.type = QpType::kXrcTarget, .xrcd = kXrcd}};
    host.srqs.targets = host_.srqs.targets;
    host.to_rtr();
    host.receive(to(srqn, request(Opcode::kXrcSendOnly, kRqPsn, pattern(4))));
    EXPECT_THAT(host.drain(), ElementsAre(IsXrcNak(NakCode::kInvalidRequest, kRqPsn)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kCommunicationEstablished, AsyncEvent::kQpRequestError));
  }
}

TEST_F(XrcTarget, MessageThatChangesItsQueueMidwayIsAnInvalidRequest) {
  post(srq_, 1, {buffer_.sge(0, 2 * kMtu)});
  post(other_srq_, 2, {other_.sge(0, 2 * kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendFirst, kRqPsn, pattern(kMtu))));
  host_.receive(to(kOtherSrqn, request(Opcode::kXrcSendLast, kRqPsn + 1, pattern(kMtu))));
  EXPECT_THAT(host_.drain(), ElementsAre(IsXrcNak(NakCode::kInvalidRequest, kRqPsn + 1)));
  EXPECT_THAT(ScriptedQp::take(cq_), ElementsAre(IsCompletion(1, WcStatus::kRemoteInvalidRequestError)));
  EXPECT_THAT(ScriptedQp::take(other_cq_), IsEmpty());
  EXPECT_EQ(other_srq_.available(), 1u);
}

// The target itself has no protection domain: the queue's counts.
TEST_F(XrcTarget, RemoteKeysAreOfTheQueuesProtectionDomain) {
  host_.receive(to(kSrqn, request(Opcode::kXrcWriteOnly, kRqPsn, pattern(8, 9)).reth(kIova, buffer_.key, 8)));
  EXPECT_EQ(part(buffer_.bytes, 0, 8), pattern(8, 9));
  host_.receive(to(kSrqn, request(Opcode::kXrcWriteOnly, kRqPsn + 1, pattern(8, 9)).reth(0x5000, other_.key, 8)));
  EXPECT_THAT(host_.drain(), ElementsAre(IsXrcNak(NakCode::kRemoteAccessError, kRqPsn + 1)));
  EXPECT_EQ(other_.bytes, pattern(4 * kMtu, 4));
  EXPECT_THAT(host_.events, Contains(AsyncEvent::kQpAccessError));
}

// A READ that is replayed when another queue's requests have come since.
TEST_F(XrcTarget, ReplayOfAReadRemembersItsProtectionDomain) {
  post(other_srq_, 2, {other_.sge(0, kMtu)});
  host_.receive(to(kSrqn, read(kRqPsn, buffer_, 0, kMtu + 8)));
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadResponse(Opcode::kXrcReadResponseFirst, kRqPsn, pattern(kMtu, 3)),
                                        HasOpcode(Opcode::kXrcReadResponseLast)));
  host_.receive(to(kOtherSrqn, request(Opcode::kXrcSendOnly, kRqPsn + 2, pattern(4))));
  host_.receive(to(kSrqn, read(kRqPsn, buffer_, 0, kMtu + 8)));
  EXPECT_THAT(host_.pull(),
              ElementsAre(IsReadResponse(Opcode::kXrcReadResponseFirst, kRqPsn, pattern(kMtu, 3)),
                          IsReadResponse(Opcode::kXrcReadResponseLast, kRqPsn + 1, part(buffer_.bytes, kMtu, 8))));
  EXPECT_EQ(host_.qp.state(), QpState::kRtr);
}

// Responses that have not left when a request for another queue comes.
TEST_F(XrcTarget, ResponsesUnderWayKeepTheirProtectionDomain) {
  host_.receive(to(kSrqn, read(kRqPsn, buffer_, 0, 8)));
  host_.receive(to(kOtherSrqn, read(kRqPsn + 1, other_, 0, 8)));
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadResponse(Opcode::kXrcReadResponseOnly, kRqPsn, pattern(8, 3)),
                                        IsReadResponse(Opcode::kXrcReadResponseOnly, kRqPsn + 1, pattern(8, 4))));
}

TEST_F(XrcTarget, AtomicsAreExecutedOnce) {
  std::fill_n(buffer_.bytes.begin(), 8, uint8_t{0});
  for (int i = 0; i < 2; ++i) {
    host_.receive(to(kSrqn, PeerPacket(Opcode::kXrcFetchAdd, kRqPsn).atomic(kIova, buffer_.key, 3)));
    const std::vector<SentPacket> sent = host_.pull();
    ASSERT_THAT(sent, ElementsAre(HasOpcode(Opcode::kXrcAtomicAcknowledge)));
    EXPECT_EQ(sent[0].headers.atomic_ack_eth.original, 0u);
  }
  EXPECT_EQ(buffer_.bytes[0], 3);
}

TEST_F(XrcTarget, EmptyQueueIsReceiverNotReadyUntilItIsFilled) {
  post(other_srq_, 2, {other_.sge(0, kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendOnly, kRqPsn, pattern(4))));
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(HasOpcode(Opcode::kXrcAcknowledge), HasPsn(kRqPsn),
                                               HasSyndrome(static_cast<uint8_t>(0x20 | 12)))));
  EXPECT_EQ(other_srq_.available(), 1u);
  post(srq_, 1, {buffer_.sge(0, kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendOnly, kRqPsn, pattern(4))).ack_request());
  EXPECT_THAT(ScriptedQp::take(cq_), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_THAT(host_.drain(), ElementsAre(IsXrcAck(kRqPsn)));
}

TEST_F(XrcTarget, LimitIsOfTheQueueThatIsTakenFrom) {
  for (uint64_t i = 0; i < 2; ++i) post(srq_, i, {buffer_.sge(0, kMtu)});
  srq_.arm_limit(2);
  host_.receive(to(kSrqn, request(Opcode::kXrcSendOnly, kRqPsn, pattern(4))));
  EXPECT_EQ(std::count(host_.events.begin(), host_.events.end(), AsyncEvent::kSrqLimitReached), 1);
}

// It has no requester.
TEST_F(XrcTarget, DropsAnswersAndPacketsOfOtherTransports) {
  for (const Opcode opcode : {Opcode::kXrcAcknowledge, Opcode::kXrcReadResponseOnly, Opcode::kXrcAtomicAcknowledge,
                              Opcode::kRcAcknowledge, Opcode::kRcSendOnly, Opcode::kUcSendOnly}) {
    host_.receive(PeerPacket(opcode, kRqPsn).aeth(0x1f));
  }
  EXPECT_EQ(host_.count(Counter::kDropWrongTransport), 6u);
  EXPECT_THAT(host_.drain(), IsEmpty());
}

TEST_F(XrcTarget, SendsNoRequests) {
  ASSERT_EQ(host_.modify(QpState::kRts, rts_mask(QpType::kXrcTarget)), 0);
  host_.post(work(WrOpcode::kSend, 1));
  EXPECT_THAT(host_.drain(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
}

TEST_F(XrcTarget, ErrorFlushesTheReceiveInUseAndLeavesTheQueues) {
  post(srq_, 1, {buffer_.sge(0, 2 * kMtu)});
  post(srq_, 2, {buffer_.sge(0, 2 * kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendFirst, kRqPsn, pattern(kMtu))));
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(ScriptedQp::take(cq_), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
  EXPECT_EQ(srq_.available(), 1u);
  EXPECT_THAT(host_.events, Not(Contains(AsyncEvent::kQpLastWqeReached))) << "the queue is nobody's";
}

// The application may destroy the queue, and then its completion queue, while a message for it is under way.
TEST_F(XrcTarget, DestroyedQueueIsNotTouchedAnyMore) {
  auto cq = std::make_unique<queue::CompletionQueue>(4, nullptr);
  auto srq = std::make_unique<queue::ReceiveQueue>(4, 1);
  host_.srqs.targets[{kXrcd, 0x60}] = {srq.get(), cq.get(), kSrqPd, kSrqPd};
  post(*srq, 1, {buffer_.sge(0, 2 * kMtu)});
  host_.receive(to(0x60, request(Opcode::kXrcSendFirst, kRqPsn, pattern(kMtu))));
  host_.srqs.targets.erase({kXrcd, 0x60});
  host_.qp.on_srq_destroyed(*srq);
  srq.reset();
  cq.reset();
  host_.receive(to(0x60, request(Opcode::kXrcSendLast, kRqPsn + 1, pattern(kMtu))));
  EXPECT_THAT(host_.drain(), ElementsAre(IsXrcNak(NakCode::kInvalidRequest, kRqPsn + 1)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(XrcTarget, DestroyingAnotherQueueChangesNothing) {
  post(srq_, 1, {buffer_.sge(0, 2 * kMtu)});
  host_.receive(to(kSrqn, request(Opcode::kXrcSendFirst, kRqPsn, pattern(kMtu))));
  host_.qp.on_srq_destroyed(other_srq_);
  host_.receive(to(kSrqn, request(Opcode::kXrcSendLast, kRqPsn + 1, pattern(kMtu))));
  EXPECT_THAT(ScriptedQp::take(cq_), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

// --- both ------------------------------------------------------------------------------------------------------------

// Messages of all kinds to two queues; one of n packets of either direction is lost.
class XrcLoss : public testing::TestWithParam<int> {};

TEST_P(XrcLoss, EveryMessageArrivesOnceInItsQueue) {
  constexpr int kMessages = 60;
  ScriptedQp initiator{{.type = QpType::kXrcInitiator}}, target{{.type = QpType::kXrcTarget, .xrcd = kXrcd}};
  queue::ReceiveQueue srqs[2] = {{64, 1}, {64, 1}};
  queue::CompletionQueue cqs[2] = {{128, nullptr}, {128, nullptr}};
  for (uint32_t i = 0; i < 2; ++i) target.srqs.targets[{kXrcd, 10 + i}] = {&srqs[i], &cqs[i], kPd, kPd};
  QpAttributes a = default_attributes();
  a.retry_count = a.rnr_retry = 7;
  initiator.to_rts(a);
  std::swap(a.sq_psn, a.rq_psn);
  target.to_rtr(a);
  Buffer source = initiator.make_buffer(3 * kMtu);
  Buffer inbox = target.make_buffer(3 * kMtu);
  uint32_t expected[2] = {};
  for (uint32_t i = 0; i < kMessages; ++i) {
    const uint32_t which = i % 3 == 0;
    queue::SendWqe wqe = work(WrOpcode::kSend, i);
    if (i % 5 == 4) {
      wqe = rdma(WrOpcode::kRdmaRead, i, inbox.iova, inbox.key);
    } else {
      ASSERT_TRUE(srqs[which].post(i, std::vector{inbox.sge(0, 3 * kMtu)}));
      ++expected[which];
    }
    wqe.set_xrc_srqn(10 + which);
    initiator.post(wqe, {source.sge(0, 1 + i * 11 % (3 * kMtu))});
  }
  uint32_t chance = 1;
  const auto move = [&](ScriptedQp& from, ScriptedQp& to) {
    size_t moved = 0;
    io::TxPacket packet;
    while (from.qp.pull(packet, from.now) || from.qp.pull_ack(packet, from.now)) {
      ++moved;
      chance = chance * 1664525 + 1013904223;
      if ((chance >> 8) % static_cast<uint32_t>(GetParam()) == 0) continue;
      Bytes ib(packet.header.begin(), packet.header.begin() + packet.header_size);
      for (uint8_t i = 0; i < packet.fragment_count; ++i) {
        ib.insert(ib.end(), packet.fragments[i].data, packet.fragments[i].data + packet.fragments[i].size);
      }
      ib.resize(ib.size() + packet.pad + wire::kIcrcSize);
      wire::Packet parsed;
      EXPECT_EQ(wire::parse_packet(ib, parsed), wire::ParseError::kNone);
      to.qp.on_packet(parsed, to.now);
    }
    return moved;
  };
  std::vector<queue::Cqe> sends;
  for (int round = 0; round < 100000 && sends.size() < kMessages; ++round) {
    while (move(initiator, target) + move(target, initiator) > 0) {
    }
    for (const queue::Cqe& cqe : initiator.sends()) sends.push_back(cqe);
    if (initiator.qp.deadline() == kNever) continue;
    initiator.expire();
    target.now = initiator.now;
  }
  ASSERT_THAT(sends, SizeIs(kMessages));
  for (uint32_t i = 0; i < kMessages; ++i) EXPECT_THAT(sends[i], IsCompletion(i, WcStatus::kSuccess));
  for (uint32_t which = 0; which < 2; ++which) {
    const std::vector<queue::Cqe> receives = ScriptedQp::take(cqs[which]);
    EXPECT_THAT(receives, SizeIs(expected[which]));
    for (size_t i = 1; i < receives.size(); ++i) EXPECT_LT(receives[i - 1].wr_id, receives[i].wr_id);
    for (const queue::Cqe& cqe : receives) {
      EXPECT_EQ(cqe.status, WcStatus::kSuccess);
      EXPECT_EQ(cqe.byte_length, 1 + cqe.wr_id * 11 % (3 * kMtu));
    }
  }
  EXPECT_GT(initiator.count(Counter::kTxRetransmissions), 0u);
}

INSTANTIATE_TEST_SUITE_P(OneOf, XrcLoss, testing::Values(4, 8, 20));

}  // namespace
}  // namespace uroce::transport::test

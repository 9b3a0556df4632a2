// SPDX-License-Identifier: BSD-2-Clause
// Binding and invalidating of memory windows in an RC send queue: in order, without a packet (IBTA 10.8.3.3), and what
// SEND with invalidate does on the other side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

class LocalOperations : public testing::Test {
 protected:
  LocalOperations() {
    host_.to_rts();
    host_.add_window(window_);
  }
  void invalidate(uint64_t wr_id, uint8_t flags = queue::kSignaled) {
    queue::SendWqe wqe = work(WrOpcode::kLocalInvalidate, wr_id, flags);
    wqe.immediate_or_rkey = window_.key;
    host_.post(wqe);
  }
  // The peer may write there.
  bool valid() const {
    return host_.mrs.translate_remote(window_.key, kPd, kQpn, window_.iova, 8, memory::kRemoteWrite).result ==
           memory::AccessResult::kOk;
  }

  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
  Buffer window_{pattern(64), 0x9000};
};

TEST_F(LocalOperations, ExecuteAtOnceInAnIdleQueue) {
  invalidate(1);
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_FALSE(valid());
  const std::vector<queue::Cqe> sends = host_.sends();
  ASSERT_THAT(sends, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(sends[0].opcode, WcOpcode::kLocalInvalidate);
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
}

TEST_F(LocalOperations, NothingPassesOneAndItPassesNothing) {
  host_.post(work(WrOpcode::kSend, 1, 0), {buffer_.sge(0, 4)});
  invalidate(2, 0);
  host_.post(work(WrOpcode::kSend, 3), {buffer_.sge(0, 4)});
  const std::vector<SentPacket> sent = host_.pull();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0], AsksForAck()) << "or the unsignaled SEND would not be acknowledged";
  EXPECT_TRUE(valid());
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
  host_.receive(ack(kSqPsn));
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn + 1)));
  EXPECT_FALSE(valid());
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, WcStatus::kSuccess)));
}

TEST_F(LocalOperations, WaitForReads) {
  host_.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 8), {buffer_.sge(0, 8)});
  invalidate(2);
  EXPECT_THAT(host_.pull(), SizeIs(1));
  EXPECT_TRUE(valid());
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
}

// What precedes it was sent without asking for an acknowledgement, because another answer was under way.
TEST_F(LocalOperations, PostedLaterThanAnUnsignaledPredecessor) {
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 4)});
  host_.pull();
  host_.post(work(WrOpcode::kSend, 2, 0), {buffer_.sge(0, 4)});
  EXPECT_THAT(host_.pull(), SizeIs(1));
  invalidate(3);
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(), SizeIs(1));
  ASSERT_NE(host_.qp.deadline(), kNever);
  host_.expire();
  const std::vector<SentPacket> again = host_.pull();
  ASSERT_THAT(again, ElementsAre(HasPsn(kSqPsn + 1)));
  EXPECT_THAT(again[0], AsksForAck());
  host_.receive(ack(kSqPsn + 1));
  host_.pull();
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, WcStatus::kSuccess)));
}

TEST_F(LocalOperations, SeveralInARow) {
  for (uint64_t i = 1; i <= 3; ++i) {
    Buffer window{pattern(8), 0x9000 + i * 0x1000};
    host_.add_window(window);
    queue::SendWqe wqe = work(WrOpcode::kLocalInvalidate, i);
    wqe.immediate_or_rkey = window.key;
    host_.post(wqe);
  }
  host_.post(work(WrOpcode::kSend, 4), {buffer_.sge(0, 4)});
  EXPECT_THAT(host_.pull(), SizeIs(1));
  EXPECT_THAT(host_.sends(), SizeIs(3));
}

TEST_F(LocalOperations, FailingOneEndsTheQpInOrder) {
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 4)});
  queue::SendWqe bind = work(WrOpcode::kBindMw, 2, 0);
  host_.post(bind);
  host_.post(work(WrOpcode::kSend, 3), {buffer_.sge(0, 4)});
  host_.pull();
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kMwBindError),
                                         IsCompletion(3, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(LocalOperations, InvalidatingTwiceOrARegionFails) {
  for (const uint32_t key : {window_.key + 1, buffer_.key}) {
    ScriptedQp host;
    host.to_rts();
    queue::SendWqe wqe = work(WrOpcode::kLocalInvalidate, 1, 0);
    wqe.immediate_or_rkey = key;
    host.post(wqe);
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
  }
  invalidate(1);
  invalidate(2);
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalQpOperationError)));
}

// The request behind a bind may name the new key: the window is open when it leaves.
TEST_F(LocalOperations, BindOpensTheWindowBeforeWhatFollowsLeaves) {
  Buffer region{pattern(256), 0xb000};
  host_.add(region, {.access = memory::kLocalWrite | memory::kMwBind});
  const uint32_t window = host_.mrs.add_window(memory::WindowType::kType2, kPd);
  queue::SendWqe bind = work(WrOpcode::kBindMw, 2);
  bind.rkey = window;
  bind.immediate_or_rkey = window ^ 1;
  bind.remote_address = region.iova + 64;
  bind.bind = {.length = 32, .region_key = region.key, .access = memory::kRemoteWrite};
  const auto opened = [&](uint64_t va) {
    return host_.mrs.translate_remote(window ^ 1, kPd, kQpn, va, 8, memory::kRemoteWrite).result ==
           memory::AccessResult::kOk;
  };
  host_.post(work(WrOpcode::kSend, 1, 0), {buffer_.sge(0, 4)});
  host_.post(bind);
  host_.post(work(WrOpcode::kSend, 3), {buffer_.sge(0, 4)});
  EXPECT_THAT(host_.pull(), SizeIs(1));
  EXPECT_FALSE(opened(region.iova + 64));
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.pull(), SizeIs(1));
  EXPECT_TRUE(opened(region.iova + 64));
  EXPECT_FALSE(opened(region.iova + 64 + 25)) << "only as long as asked";
  const std::vector<queue::Cqe> sends = host_.sends();
  ASSERT_THAT(sends, ElementsAre(IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_EQ(sends[0].opcode, WcOpcode::kBindMw);
  // The peer uses it, and ends it with a SEND.
  host_.receive(
      request(Opcode::kRcWriteOnly, kRqPsn, pattern(8, 9)).reth(region.iova + 64, window ^ 1, 8).ack_request());
  EXPECT_EQ(part(region.bytes, 64, 8), pattern(8, 9));
  host_.post_receive(9);
  host_.receive(request(Opcode::kRcSendOnlyInvalidate, kRqPsn + 1).invalidate(window ^ 1));
  const std::vector<queue::Cqe> receives = host_.receives();
  ASSERT_THAT(receives, ElementsAre(IsCompletion(9, WcStatus::kSuccess)));
  EXPECT_EQ(receives[0].flags, queue::kWcWithInvalidate);
  EXPECT_EQ(receives[0].immediate_or_rkey, window ^ 1);
  EXPECT_FALSE(opened(region.iova + 64));
}

TEST_F(LocalOperations, AreNotBegunWhileDraining) {
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 4)});
  invalidate(2);
  host_.pull();
  QpAttributes a = default_attributes();
  a.en_sqd_async_notify = true;
  ASSERT_EQ(host_.modify(QpState::kSqd, kQpState | kQpEnSqdAsyncNotify, a), 0);
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_TRUE(valid());
  EXPECT_THAT(host_.events, ElementsAre(AsyncEvent::kSqDrained));
  ASSERT_EQ(host_.modify(QpState::kRts, kQpState), 0);
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_FALSE(valid());
  EXPECT_THAT(host_.sends(), SizeIs(2));
}

TEST_F(LocalOperations, AreFlushedInTheErrorState) {
  invalidate(1);
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_TRUE(valid());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
}

TEST_F(LocalOperations, RetransmissionOfWhatPrecedesOneDoesNotExecuteIt) {
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 2 * kMtu)});
  invalidate(2);
  EXPECT_THAT(host_.pull(), SizeIs(2));
  host_.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn + 1)));
  EXPECT_TRUE(valid());
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_FALSE(valid());
}

// Asked of this time, not of an earlier one.
TEST(DrainNotification, IsOfEachTransitionOfItsOwn) {
  ScriptedQp host;
  host.to_rts();
  QpAttributes a = default_attributes();
  a.en_sqd_async_notify = true;
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState | kQpEnSqdAsyncNotify, a), 0);
  EXPECT_THAT(host.events, SizeIs(1));
  ASSERT_EQ(host.modify(QpState::kRts, kQpState), 0);
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState), 0);
  EXPECT_THAT(host.events, SizeIs(1));
}

}  // namespace
}  // namespace uroce::transport::test

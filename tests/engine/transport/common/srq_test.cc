// SPDX-License-Identifier: BSD-2-Clause
// An RC QP on a shared receive queue (IBTA 10.2.9): what is left in the queue belongs to others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcStatus;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using wire::Opcode;

class SharedReceiveQueue : public testing::Test {
 protected:
  SharedReceiveQueue() { host_.to_rtr(); }
  ScriptedQp host_{{.rq_shared = true}};
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
};

// IBTA 11.6.3.2: the event tells that no more receive completions of this QP will come.
TEST_F(SharedReceiveQueue, ErrorRaisesLastWqeReachedAndFlushesNothingOfTheQueue) {
  host_.post_receive(1);
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_THAT(host_.events, ElementsAre(AsyncEvent::kQpLastWqeReached));
  EXPECT_EQ(host_.rq.available(), 1u);
}

TEST_F(SharedReceiveQueue, TheReceiveInUseIsFlushedBeforeTheEvent) {
  host_.post_receive(1, {buffer_.sge(0, 2 * kMtu)});
  host_.post_receive(2);
  host_.receive(request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu)));
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
  EXPECT_THAT(host_.events, Contains(AsyncEvent::kQpLastWqeReached));
  EXPECT_EQ(host_.rq.available(), 1u);
}

TEST_F(SharedReceiveQueue, ResetLeavesTheQueueAlone) {
  host_.post_receive(1);
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  EXPECT_EQ(host_.rq.available(), 1u);
  EXPECT_THAT(host_.events, Not(Contains(AsyncEvent::kQpLastWqeReached)));
}

TEST(OwnReceiveQueue, HasNoLastWqeReached) {
  ScriptedQp host;
  host.to_rtr();
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host.events, IsEmpty());
}

// Fault 50: empty is RNR; the limit is told once.
TEST_F(SharedReceiveQueue, EmptyIsReceiverNotReady) {
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn).ack_request());
  EXPECT_THAT(host_.drain(), ElementsAre(IsRnrNak(kRqPsn, default_attributes().min_rnr_timer)));
  EXPECT_EQ(host_.qp.state(), QpState::kRtr);
}

TEST_F(SharedReceiveQueue, LimitIsToldOnceWhenFewerAreLeft) {
  for (uint64_t i = 0; i < 4; ++i) host_.post_receive(i);
  host_.rq.arm_limit(3);
  (void)host_.events;
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn));
  EXPECT_THAT(host_.events, Not(Contains(AsyncEvent::kSrqLimitReached))) << "3 are left, not fewer";
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn + 1));
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn + 2));
  EXPECT_EQ(std::count(host_.events.begin(), host_.events.end(), AsyncEvent::kSrqLimitReached), 1);
  EXPECT_EQ(host_.rq.limit(), 0u);
}

// IBTA 10.2.9: what receive requests name is of the queue's protection domain, what the peer names of the QP's.
TEST(SharedReceiveQueuePd, ReceiveRequestsAreOfItsOwnProtectionDomain) {
  ScriptedQp host{{.rq_shared = true, .rq_pd = kPd + 1}};
  host.to_rtr();
  Buffer theirs{pattern(kMtu)}, ours{pattern(kMtu), 0x5000};
  host.add(theirs, {.access = memory::kLocalWrite | memory::kRemoteWrite, .pd = kPd + 1});
  host.add(ours, {.access = memory::kLocalWrite | memory::kRemoteWrite});
  host.post_receive(1, {theirs.sge(0, kMtu)});
  host.receive(request(Opcode::kRcSendOnly, kRqPsn, pattern(8)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn + 1, pattern(8)).reth(0x5000, ours.key, 8));
  EXPECT_EQ(part(ours.bytes, 0, 8), pattern(8));
  host.post_receive(2, {ours.sge(0, kMtu)});
  host.receive(request(Opcode::kRcSendOnly, kRqPsn + 2, pattern(8)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(2, WcStatus::kLocalProtectionError)));
}

}  // namespace
}  // namespace uroce::transport::test

// SPDX-License-Identifier: BSD-2-Clause
// UD, UC and XRC through the data paths of two engines on one cable. No threads, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/engine/datapath/cable_rig.h"

namespace uroce::engine::test {
namespace {

using testing::SizeIs;
using transport::test::kMtu;

TEST_F(Cable, DatagramAndItsAnswer) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd);
  a.connect(ours);
  b.connect(theirs);
  b.post_receive(theirs, 7, 0, 1024);
  a.datagram(ours, 1, a.handle_to(b.address), theirs.qpn(), 4096, 100);
  run();
  ASSERT_THAT(ours.sends(), SizeIs(1));
  const std::vector<Cqe> receives = theirs.receives();
  ASSERT_THAT(receives, SizeIs(1));
  EXPECT_EQ(receives[0].byte_length, kGrh + 100);
  EXPECT_EQ(receives[0].source_qpn, ours.qpn());
  EXPECT_EQ(Bytes(&b.bytes[kGrh], &b.bytes[kGrh + 100]), Bytes(&a.bytes[4096], &a.bytes[4196]));
  // The header in front names the sender.
  const wire::IpAddress sender = wire::IpAddress::v4(&b.bytes[20 + 12]);
  EXPECT_EQ(sender, a.address);
  a.post_receive(ours, 8, 0, 1024);
  b.datagram(theirs, 2, b.handle_to(sender), receives[0].source_qpn, 4096, 10);
  run();
  EXPECT_THAT(ours.receives(), SizeIs(1));
}

TEST_F(Cable, DatagramToAnotherQpOfThisHost) {
  Station &ours = a.add(QpType::kUd), &other = a.add(QpType::kUd);
  a.connect(ours);
  a.connect(other);
  a.post_receive(other, 7, 0, 1024);
  a.datagram(ours, 1, a.handle_to(a.address), other.qpn(), 4096, 100);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
  EXPECT_THAT(other.receives(), SizeIs(1));
  EXPECT_EQ(b.count(Counter::kDropUnknownQp), 0u) << "nothing went out";
}

TEST_F(Cable, UnreliableConnection) {
  Station &ours = a.add(QpType::kUc), &theirs = b.add(QpType::kUc);
  a.connect(ours, b.address, theirs.qpn());
  b.connect(theirs, a.address, ours.qpn());
  b.post_receive(theirs, 7, 0, 4096);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 3 * kMtu + 1);
  queue::SendWqe write = transport::test::rdma(WrOpcode::kRdmaWrite, 2, 4096, b.key);
  a.post(ours, write, 4096, 2 * kMtu);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(2));
  EXPECT_THAT(theirs.receives(), SizeIs(1));
  EXPECT_EQ(Bytes(&b.bytes[0], &b.bytes[3 * kMtu + 1]), Bytes(&a.bytes[0], &a.bytes[3 * kMtu + 1]));
  EXPECT_EQ(Bytes(&b.bytes[4096], &b.bytes[4096 + 2 * kMtu]), Bytes(&a.bytes[4096], &a.bytes[4096 + 2 * kMtu]));
}

TEST_F(Cable, XrcFindsItsSharedReceiveQueue) {
  queue::CompletionQueue cq(16, nullptr);
  SrqInit settings{.pd = kPd, .xrcd = 5, .max_wr = 8, .max_sge = 1, .cq = &cq};
  Srq srq(settings, b.tables.srqs.next_number());
  b.tables.srqs.add(srq);
  QpInit init;
  init.xrcd = 5;
  Station &initiator = a.add(QpType::kXrcInitiator), &target = b.add(QpType::kXrcTarget, init);
  a.connect(initiator, b.address, target.qpn());
  b.connect(target, a.address, initiator.qpn());
  const queue::Sge sge{0, 4096, b.key};
  ASSERT_TRUE(srq.post(9, {&sge, 1}));
  queue::SendWqe wqe = work(WrOpcode::kSend, 1);
  wqe.set_xrc_srqn(srq.srqn);
  a.post(initiator, wqe, 0, 2 * kMtu);
  run();
  EXPECT_THAT(initiator.sends(), SizeIs(1));
  const std::vector<Cqe> receives = transport::test::ScriptedQp::take(cq);
  ASSERT_THAT(receives, SizeIs(1));
  EXPECT_EQ(receives[0].wr_id, 9u);
  EXPECT_EQ(receives[0].qpn, target.qpn());
  b.tables.srqs.remove(srq);
}

}  // namespace
}  // namespace uroce::engine::test

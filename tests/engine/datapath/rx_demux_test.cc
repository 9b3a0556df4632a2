// SPDX-License-Identifier: BSD-2-Clause
// Which QPs get a packet that has arrived, and which packets none. No threads, virtual time. (What no QP may be harmed
// by: datapath_faults_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/datapath/cable_rig.h"
#include "tests/engine/datapath/fault_rig.h"

namespace uroce::engine::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

const wire::IpAddress kGroup = v4(239, 1, 2, 3), kOtherGroup = v4(239, 1, 2, 4);

TEST_F(Cable, WhatIsNotForADatagramQpIsDropped) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd), &connected = b.add(QpType::kUc);
  a.connect(ours);
  b.connect(theirs);
  b.connect(connected, a.address, ours.qpn());
  b.post_receive(theirs, 7, 0, 1024);
  b.post_receive(connected, 8, 0, 1024);
  const uint32_t to_b = a.handle_to(b.address);
  const uint32_t to_group = a.handle_to(kGroup);
  ASSERT_TRUE(b.tables.groups.attach(kGroup, *theirs.qp));
  a.datagram(ours, 1, to_b, theirs.qpn(), 0, 4, kQkey + 1);
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongQkey), 1u);
  a.datagram(ours, 2, to_b, connected.qpn(), 0, 4);
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongTransport), 1u);
  a.datagram(ours, 3, to_b, kMulticastQpn, 0, 4);  // the multicast QPN to a unicast address
  run();
  EXPECT_EQ(b.count(Counter::kDropUnknownQp), 1u);
  a.datagram(ours, 4, to_group, theirs.qpn(), 0, 4);  // a QPN to a multicast address
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongAddress), 1u);
  a.datagram(ours, 5, a.handle_to(v4(192, 0, 2, 99)), theirs.qpn(), 0, 4);  // not our address
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongAddress), 2u);
  EXPECT_THAT(theirs.receives(), IsEmpty());
  EXPECT_THAT(connected.receives(), IsEmpty());
  EXPECT_THAT(ours.sends(), SizeIs(5));
}

// --- multicast -------------------------------------------------------------------------------------------------------

class Multicast : public Cable {
 protected:
  Station& member(Host& host, const wire::IpAddress& group, bool block_own = false) {
    QpInit init;
    init.block_own_multicast = block_own;
    Station& station = host.add(QpType::kUd, init);
    host.connect(station);
    EXPECT_TRUE(host.tables.groups.attach(group, *station.qp));
    for (uint64_t i = 0; i < 4; ++i) host.post_receive(station, i, 0, 1024);
    return station;
  }
  void send(Station& from, const wire::IpAddress& group = kGroup) {
    a.datagram(from, 1, a.handle_to(group), kMulticastQpn, 4096, 100);
    run();
    EXPECT_THAT(from.sends(), SizeIs(1)) << "one send, one completion";
  }
};

TEST_F(Multicast, EveryMemberHereAndThereGetsOneCopy) {
  Station &sender = member(a, kGroup), &near = member(a, kGroup), &far = member(b, kGroup),
          &far_too = member(b, kGroup);
  Station &elsewhere = member(b, kOtherGroup), &near_elsewhere = member(a, kOtherGroup);
  send(sender);
  for (Station* station : {&sender, &near, &far, &far_too}) {
    const std::vector<Cqe> receives = station->receives();
    ASSERT_THAT(receives, SizeIs(1));
    EXPECT_EQ(receives[0].byte_length, kGrh + 100);
    EXPECT_EQ(receives[0].source_qpn, sender.qpn());
  }
  EXPECT_EQ(Bytes(&b.bytes[kGrh], &b.bytes[kGrh + 100]), Bytes(&a.bytes[4096], &a.bytes[4196]));
  EXPECT_THAT(elsewhere.receives(), IsEmpty());
  EXPECT_THAT(near_elsewhere.receives(), IsEmpty());
}

TEST_F(Multicast, WhoBlocksItselfStillHearsTheOthers) {
  Station &sender = member(a, kGroup, true), &near = member(a, kGroup, true);
  send(sender);
  EXPECT_THAT(sender.receives(), IsEmpty());
  EXPECT_THAT(near.receives(), SizeIs(1));
}

// A QP elsewhere that happens to have the same number is not itself.
TEST_F(Multicast, BlockingItselfIsNotBlockingItsNumber) {
  Station& far = member(b, kGroup, true);
  transport::test::PeerPacket packet(wire::Opcode::kUdSendOnly, 1);
  Bytes ib = packet.datagram(kQkey, far.qpn()).bytes();
  wire::store_be24(&ib[5], kMulticastQpn);
  ASSERT_TRUE(b.end->inject_frame(sealed_frame(a.path_to(kGroup).envelope, ib)));
  run();
  EXPECT_THAT(far.receives(), SizeIs(1));
}

TEST_F(Multicast, AfterDetachAndForGroupsOfNobodyItIsDropped) {
  Station &sender = member(a, kOtherGroup), &far = member(b, kGroup);
  ASSERT_TRUE(b.tables.groups.detach(kGroup, *far.qp));
  EXPECT_FALSE(b.tables.groups.detach(kGroup, *far.qp));
  send(sender);
  EXPECT_THAT(far.receives(), IsEmpty());
  EXPECT_EQ(b.count(Counter::kDropNoGroup), 1u);
}

TEST_F(Multicast, MembersDecideOneByOne) {
  Station &sender = member(a, kOtherGroup), &deaf = member(b, kGroup), &other_key = member(b, kGroup),
          &far = member(b, kGroup);
  transport::QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_EQ(deaf.qp->transport->modify(attributes, transport::kQpState, b.now), 0);
  b.datapath.completions().publish();  // as a set-up call does before it lets go of the lock
  EXPECT_FALSE(deaf.receives().empty());
  attributes.state = QpState::kRts;
  attributes.qkey = kQkey + 1;
  ASSERT_EQ(other_key.qp->transport->modify(attributes, transport::kQpState | transport::kQpQkey, b.now), 0);
  send(sender);
  EXPECT_EQ(b.count(Counter::kDropQpState), 1u);
  EXPECT_EQ(b.count(Counter::kDropWrongQkey), 1u);
  EXPECT_THAT(deaf.receives(), IsEmpty());
  EXPECT_THAT(other_key.receives(), IsEmpty());
  EXPECT_THAT(far.receives(), SizeIs(1));
}

TEST_F(Multicast, DamagedPacketIsDroppedOnce) {
  Station &one = member(b, kGroup), &two = member(b, kGroup);
  transport::test::PeerPacket packet(wire::Opcode::kUdSendOnly, 1);
  Bytes ib = packet.datagram(kQkey, 17).bytes();
  wire::store_be24(&ib[5], kMulticastQpn);
  Bytes frame = sealed_frame(a.path_to(kGroup).envelope, ib);
  frame.back() ^= 1;
  ASSERT_TRUE(b.end->inject_frame(frame));
  run();
  EXPECT_EQ(b.count(Counter::kDropBadIcrc), 1u);
  EXPECT_THAT(one.receives(), IsEmpty());
  EXPECT_THAT(two.receives(), IsEmpty());
}

}  // namespace
}  // namespace uroce::engine::test

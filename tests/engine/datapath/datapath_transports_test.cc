// UC, UD and XRC through the data paths of two engines on one cable: where packets go, who gets them, multicast, and
// packets that wait under backpressure while things go away. No threads, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "tests/engine/datapath/cable_rig.h"
#include "tests/engine/datapath/fault_rig.h"

namespace uroce::engine::test {
namespace {

using queue::WcStatus;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using transport::test::kMtu;

constexpr uint32_t kGrh = 40;

const wire::IpAddress kGroup = v4(239, 1, 2, 3), kOtherGroup = v4(239, 1, 2, 4);

// --- UD --------------------------------------------------------------------------------------------------------------

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

TEST_F(Cable, AddressHandleDestroyedBeforeTheSend) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  const uint32_t handle = a.handle_to(b.address);
  a.datagram(ours, 1, handle, 5, 4096, 100);
  ASSERT_TRUE(a.tables.address_handles.remove(handle));
  run();
  EXPECT_EQ(a.count(Counter::kDropNoAddressHandle), 1u);
  const std::vector<Cqe> sends = ours.sends();
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].status, WcStatus::kSuccess) << "lost like any datagram";
  EXPECT_EQ(ours.qp->transport->state(), QpState::kRts);
  EXPECT_NE(a.handle_to(b.address), handle) << "its slot is used again, its number is not";
}

// The port takes it, its route does not: lost like any datagram, not fragmented. IP, UDP, BTH, DETH and ICRC are 52
// bytes.
TEST_F(Cable, DatagramLongerThanItsRouteAllowsIsLost) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd);
  a.connect(ours);
  b.connect(theirs);
  for (uint64_t i = 0; i < 4; ++i) b.post_receive(theirs, i, 0, 1024);
  Path path = a.path_to(b.address);
  path.to = std::make_shared<Destination>(a.address, b.address);
  path.to->route.mtu = 52 + 200;
  const uint32_t narrow = a.tables.address_handles.add(path), wide = a.handle_to(b.address);
  a.datagram(ours, 1, narrow, theirs.qpn(), 4096, 200);
  a.datagram(ours, 2, narrow, theirs.qpn(), 4096, 201);
  a.datagram(ours, 3, wide, theirs.qpn(), 4096, 204);
  a.datagram(ours, 4, narrow, theirs.qpn(), 4096, 40);
  run();
  const std::vector<Cqe> sends = ours.sends();
  ASSERT_THAT(sends, SizeIs(4));
  for (const Cqe& cqe : sends) EXPECT_EQ(cqe.status, WcStatus::kSuccess) << cqe.wr_id;
  EXPECT_THAT(theirs.receives(), ElementsAre(Field(&Cqe::byte_length, kGrh + 200), Field(&Cqe::byte_length, kGrh + 204),
                                             Field(&Cqe::byte_length, kGrh + 40)));
  EXPECT_EQ(a.count(Counter::kDropPathMtu), 1u);
  EXPECT_EQ(ours.qp->transport->state(), QpState::kRts);
  path.to->route.mtu = 1500;  // followed as it changes
  a.datagram(ours, 5, narrow, theirs.qpn(), 4096, 201);
  run();
  EXPECT_THAT(theirs.receives(), SizeIs(1));
}

TEST_F(Cable, RouteOfLoopbackLimitsNothing) {
  Station &ours = a.add(QpType::kUd), &other = a.add(QpType::kUd);
  a.connect(ours);
  a.connect(other);
  a.post_receive(other, 7, 0, 1024);
  Path path = a.path_to(a.address);
  path.to->route.mtu = 68;  // the smallest that a netdev can have
  a.datagram(ours, 1, a.tables.address_handles.add(path), other.qpn(), 4096, 200);
  run();
  EXPECT_THAT(other.receives(), SizeIs(1));
}

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

// --- UC and XRC ------------------------------------------------------------------------------------------------------

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

TEST(SrqNumbers, AreNeverTwoTheSameNorZero) {
  SrqTable table;
  SrqInit settings{.xrcd = 1};
  const uint32_t first = table.next_number();
  ASSERT_NE(first, 0u);
  Srq one(settings, first);
  table.add(one);
  Srq two(settings, table.next_number());
  EXPECT_NE(two.srqn, first);
  table.add(two);
  EXPECT_EQ(table.find(1, first), &one.target);
  EXPECT_EQ(table.find(2, first), nullptr) << "another domain";
  EXPECT_EQ(table.find(0, first), nullptr);
  table.remove(one);
  EXPECT_EQ(table.find(1, first), nullptr);
  EXPECT_EQ(table.find(1, two.srqn), &two.target);
}

// --- backpressure ----------------------------------------------------------------------------------------------------

// The cable takes four packets until the other side looks.
class Congested : public Cable {
 protected:
  static constexpr uint32_t kCapacity = 4;
  Congested() : Cable(kCapacity) {
    a.connect(ours);
    b.connect(theirs);
    for (uint64_t i = 0; i < 64; ++i) b.post_receive(theirs, i, 0, 1024);
  }
  void send(uint32_t count) {
    for (uint64_t i = 0; i < count; ++i) a.datagram(ours, i, to_b, theirs.qpn(), 4096, 8);
  }
  Station& ours = a.add(QpType::kUd);
  Station& theirs = b.add(QpType::kUd);
  const uint32_t to_b = a.handle_to(b.address);
};

TEST_F(Congested, CompletionsComeWithTheBytesAndAllOfThem) {
  send(60);
  a.run();
  EXPECT_EQ(ours.sends().size(), kCapacity);
  EXPECT_TRUE(a.datapath.backpressured());
  size_t completed = kCapacity, received = 0;
  uint64_t next = 0;
  for (int i = 0; i < 100 && received < 60; ++i) {
    b.run();
    for (const Cqe& cqe : theirs.receives()) EXPECT_EQ(cqe.wr_id, next++);
    received = next;
    a.run();
    completed += ours.sends().size();
    EXPECT_LE(completed, received + kCapacity);
  }
  EXPECT_EQ(received, 60u);
  EXPECT_EQ(completed, 60u);
}

// A packet to ourselves does not wait behind those on the wire, but it completes behind them.
TEST_F(Congested, PacketsToOurselvesCompleteInTurn) {
  Station& near = a.add(QpType::kUd);
  a.connect(near);
  a.post_receive(near, 1, 0, 1024);
  send(6);
  a.datagram(ours, 6, a.handle_to(a.address), near.qpn(), 4096, 8);
  a.run();
  EXPECT_THAT(near.receives(), SizeIs(1));
  EXPECT_EQ(ours.sends().size(), kCapacity) << "4 and 5 still wait: their memory is not the application's yet";
  run();
  const std::vector<Cqe> rest = ours.sends();
  ASSERT_THAT(rest, SizeIs(3));
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i].wr_id, 4 + i);
}

TEST_F(Congested, DroppedPacketsCompleteBehindThoseThatWait) {
  const uint32_t gone = a.handle_to(b.address);
  send(6);
  a.datagram(ours, 6, gone, theirs.qpn(), 4096, 8);
  a.tables.address_handles.remove(gone);
  a.run();
  EXPECT_EQ(ours.sends().size(), kCapacity);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(3));
}

TEST_F(Congested, DestroyedWithPacketsWaitingNothingOfItIsSentAndNothingLeft) {
  Station& other = a.add(QpType::kUd);
  a.connect(other);
  send(20);
  a.run();
  a.datagram(other, 77, to_b, theirs.qpn(), 4096, 8);
  a.destroy(ours);
  EXPECT_THAT(ours.sends(), IsEmpty()) << "its completions go with it";
  run();
  EXPECT_EQ(theirs.receives().size(), kCapacity + 1);
  EXPECT_THAT(other.sends(), SizeIs(1));
}

// Behind a full cable wait packets of two QPs, from two regions, to two address handles. Each has its own length.
class Waiting : public Congested {
 protected:
  Waiting() {
    a.connect(other);
    send(kCapacity);
    a.run();
    for (const uint32_t length : {10, 20, 30, 40}) {
      Station& from = length < 30 ? ours : other;
      post(from, to_b, length, key());
      post(from, to_b, length + 1, short_key);
      post(from, short_lived, length + 2, key());
    }
    a.run();
  }
  void post(Station& from, uint32_t handle, uint32_t length, uint32_t lkey) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(from.qp->sq.reserve(0, slot));
    *slot.wqe = work(WrOpcode::kSend, length);
    slot.wqe->ud = {.address_handle = handle, .remote_qpn = theirs.qpn(), .remote_qkey = kQkey};
    slot.wqe->sge_count = 1;
    *slot.sges = {8, length, lkey};
    from.qp->sq.publish(1);
    a.datapath.ring(*from.qp);
  }
  uint32_t key() const { return a.key; }
  // Of those that waited. All have completed.
  std::vector<uint32_t> lengths_that_arrive() {
    run();
    EXPECT_THAT(ours.sends(), SizeIs(kCapacity + 6));
    EXPECT_THAT(other.sends(), SizeIs(6));
    std::vector<uint32_t> lengths;
    for (const Cqe& cqe : theirs.receives()) lengths.push_back(cqe.byte_length - 40);  // the GRH's place
    lengths.erase(lengths.begin(), lengths.begin() + kCapacity);
    return lengths;
  }

  Station& other = a.add(QpType::kUd);
  Bytes bytes = Bytes(64);
  const memory::MemoryRegion region{.base = bytes.data(), .iova = 0, .length = 64, .pd = kPd};
  const uint32_t short_key = a.tables.regions.add(region);
  const uint32_t short_lived = a.handle_to(b.address);
};

TEST_F(Waiting, OnlyPacketsOfTheRegionThatGoesAreForgotten) {
  a.datapath.forget_waiting_packets(memory::MemoryRegion{.base = bytes.data(), .length = 8});  // in front of them
  a.datapath.forget_waiting_packets(memory::MemoryRegion{.base = bytes.data() + 8 + 41, .length = 8});  // behind them
  a.datapath.forget_waiting_packets(memory::MemoryRegion{.base = bytes.data() + 8 + 30, .length = 2});
  EXPECT_THAT(lengths_that_arrive(), ElementsAre(10, 11, 12, 20, 21, 22, 30, 32, 40, 42));
}

TEST_F(Waiting, OnlyPacketsToTheAddressHandleThatGoesAreForgotten) {
  a.datapath.forget_waiting_packets(*a.tables.address_handles.find(short_lived));
  EXPECT_THAT(lengths_that_arrive(), ElementsAre(10, 11, 20, 21, 30, 31, 40, 41));
}

TEST_F(Waiting, OnlyPacketsOfTheQpThatGoesAreForgotten) {
  a.datapath.forget_waiting_packets(*other.qp);
  EXPECT_THAT(lengths_that_arrive(), ElementsAre(10, 11, 12, 20, 21, 22));
}

// Memory goes: what points to it is lost as on a wire, and completes.
TEST_F(Congested, ForgottenPacketsComplete) {
  send(20);
  a.run();
  EXPECT_EQ(ours.sends().size(), kCapacity);
  a.datapath.forget_waiting_packets();
  a.datapath.completions().publish();  // as a set-up call does before it lets go of the lock
  EXPECT_EQ(ours.sends().size(), 20 - kCapacity);
  run();
  EXPECT_EQ(theirs.receives().size(), kCapacity);
}

// --- address handles -------------------------------------------------------------------------------------------------

TEST(AddressHandlesTest, NumbersNameWhatWasAddedAndNothingElse) {
  AddressHandles handles(3);
  EXPECT_EQ(handles.find(0), nullptr);
  std::array<uint32_t, 3> numbers;
  for (uint32_t& number : numbers) {
    number = handles.add(Path{});
    ASSERT_NE(number, 0u);
  }
  EXPECT_EQ(handles.add(Path{}), 0u) << "three is all";
  EXPECT_TRUE(handles.remove(numbers[1]));
  EXPECT_FALSE(handles.remove(numbers[1]));
  EXPECT_EQ(handles.find(numbers[1]), nullptr);
  const uint32_t again = handles.add(Path{});
  EXPECT_NE(again, numbers[1]);
  EXPECT_EQ(handles.find(numbers[1]), nullptr) << "the old number stays dead";
  EXPECT_NE(handles.find(again), nullptr);
  EXPECT_NE(handles.find(numbers[0]), handles.find(numbers[2]));
}

}  // namespace
}  // namespace uroce::engine::test

// SPDX-License-Identifier: BSD-2-Clause
// Packets and the MAC address of their next hop: they wait while the kernel looks for it, are dropped and counted once
// it has given up, and follow it when it changes. Virtual time.
#include <gmock/gmock.h>

#include "engine/net/next_hop.h"
#include "tests/engine/datapath/cable_rig.h"

namespace uroce::engine::test {
namespace {

using net::Neighbour;
using net::NeighbourState;
using net::NextHop;
using queue::WcStatus;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

constexpr wire::MacAddress kMac{2, 0, 0, 0, 0, 0xb1}, kOther{2, 0, 0, 0, 0, 0xb2};
const Neighbour kUsable{NeighbourState::kUsable, kMac};
const Neighbour kFailed{NeighbourState::kFailed, {}};
const Neighbour kResolving{NeighbourState::kResolving, {}};

class NextHopTest : public Cable {
 protected:
  // The path from `host` to `to`, over `hop`.
  static Path over(Host& host, const wire::IpAddress& to, const std::shared_ptr<NextHop>& hop) {
    Path path = host.path_to(to);
    path.to = std::make_shared<Destination>(host.address, to);
    path.to->route.next_hop = hop;
    return path;
  }
  std::shared_ptr<NextHop> hop(const Neighbour& neighbour = {}) {
    return std::make_shared<NextHop>(1, b.address, neighbour);
  }
  void tell(NextHop& about, const Neighbour& neighbour) {
    if (about.set(neighbour)) a.datapath.next_hops().note_change();
  }
  // An RC QP of a connected to one of b, over `to_b`; back over `to_a`, or straight.
  Station& connected(const std::shared_ptr<NextHop>& to_b, const std::shared_ptr<NextHop>& to_a = nullptr) {
    Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc);
    a.connect(ours, b.address, theirs.qpn());
    b.connect(theirs, a.address, ours.qpn());
    ours.qp->path = over(a, b.address, to_b);
    if (to_a) theirs.qp->path = over(b, a.address, to_a);
    return ours;
  }
  void write(Station& station, uint64_t wr_id, uint32_t size = 100) {
    queue::SendWqe wqe = work(WrOpcode::kRdmaWrite, wr_id);
    wqe.remote_address = 0;
    wqe.rkey = b.key;
    a.post(station, wqe, 0, size);
  }
  void advance(Duration time) {
    a.now += time;
    b.now += time;
  }
  size_t asked() {
    NextHopWaits::List wanted;
    wanted.reserve(NextHopWaits::kMostWanted);
    a.datapath.next_hops().take_wanted(wanted);
    return wanted.size();
  }
  static wire::MacAddress destination_mac(const std::vector<uint8_t>& frame) {
    wire::MacAddress mac;
    std::copy_n(frame.begin(), mac.size(), mac.begin());
    return mac;
  }
};

TEST_F(NextHopTest, ConnectedQpWaitsAndLosesNothing) {
  const auto to_b = hop();
  Station& ours = connected(to_b);
  for (uint64_t i = 0; i < 8; ++i) write(ours, i);
  run();
  EXPECT_EQ(a.end->counters().tx_packets, 0u);
  EXPECT_FALSE(a.datapath.unfinished()) << "nobody spins for it";
  EXPECT_TRUE(a.datapath.next_hops().has_waiters());
  EXPECT_EQ(a.datapath.next_deadline(), a.now + milliseconds(100)) << "when the kernel is asked again";
  tell(*to_b, kResolving);
  run();
  EXPECT_EQ(a.end->counters().tx_packets, 0u);
  tell(*to_b, kUsable);
  EXPECT_TRUE(a.datapath.unfinished());
  run();
  EXPECT_THAT(ours.sends(), SizeIs(8));
  EXPECT_EQ(a.end->counters().tx_packets, 8u) << "each was sent once";
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 0u);
  EXPECT_FALSE(a.datapath.next_hops().has_waiters());
}

// As `ip neighbour flush` does, which goes over the table until it is empty.
TEST_F(NextHopTest, KernelIsAskedAgainForAnEntryThatIsDeletedWhileQpsWait) {
  const auto to_b = hop();
  Station& ours = connected(to_b);
  write(ours, 1);
  run();
  EXPECT_EQ(asked(), 1u);
  tell(*to_b, kResolving);
  run();
  tell(*to_b, {});
  for (int i = 0; i < 5; ++i) {
    advance(milliseconds(100));
    run();
    EXPECT_EQ(asked(), 1u);
  }
  tell(*to_b, kUsable);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
}

TEST_F(NextHopTest, ConnectedQpGivesUpByItsRetryBudgetOnceTheKernelHas) {
  const auto to_b = hop(kResolving);
  Station& ours = connected(to_b);
  write(ours, 1);
  run();
  tell(*to_b, kFailed);
  run();
  EXPECT_FALSE(a.datapath.next_hops().has_waiters()) << "the kernel has waited long enough";
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 1u);
  std::vector<Cqe> sends;
  for (int i = 0; i < 100000 && sends.empty(); ++i) {
    advance(milliseconds(1));
    run();
    sends = ours.sends();
  }
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].status, WcStatus::kRetryExceeded);
  EXPECT_GT(a.count(Counter::kDropNoNeighbour), 0u);
  EXPECT_EQ(a.end->counters().tx_packets, 0u);
}

TEST_F(NextHopTest, ConnectedQpDoesNotWaitForEver) {
  const auto to_b = hop();
  Station& ours = connected(to_b);
  write(ours, 1);
  run();
  advance(seconds(4));
  run();
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 1u);
  to_b->set(kUsable);  // and when it is found, a retransmission gets through
  for (int i = 0; i < 10000 && a.end->counters().tx_packets == 0; ++i) {
    advance(milliseconds(1));
    run();
  }
  EXPECT_THAT(ours.sends(), SizeIs(1));
}

// What was waited before, for another loss of the same neighbour, does not count.
TEST_F(NextHopTest, EachWaitHasItsFullTime) {
  const auto to_b = hop();
  Station& ours = connected(to_b);
  for (uint64_t i = 0; i < 3; ++i) {
    write(ours, i);
    run();
    advance(seconds(3));
    run();
    EXPECT_TRUE(a.datapath.next_hops().has_waiters());
    EXPECT_GT(a.datapath.next_deadline(), a.now) << "nobody spins for it";
    tell(*to_b, kUsable);
    run();
    EXPECT_THAT(ours.sends(), SizeIs(1));
    tell(*to_b, {});
  }
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 0u);
}

TEST_F(NextHopTest, DatagramsWaitBriefly) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd);
  a.connect(ours);
  b.connect(theirs);
  for (uint64_t i = 0; i < 3; ++i) b.post_receive(theirs, i, 0, 1024);
  const auto to_b = hop();
  const uint32_t handle = a.tables.address_handles.add(over(a, b.address, to_b));
  for (uint64_t i = 0; i < 3; ++i) a.datagram(ours, i, handle, theirs.qpn(), 4096, 100);
  run();
  EXPECT_THAT(ours.sends(), IsEmpty());
  tell(*to_b, kUsable);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(3));
  EXPECT_THAT(theirs.receives(), SizeIs(3));
}

TEST_F(NextHopTest, DatagramsToAnAddressWithoutAnswerAreDroppedAndComplete) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  const uint32_t handle = a.tables.address_handles.add(over(a, b.address, hop()));
  for (uint64_t i = 0; i < 3; ++i) a.datagram(ours, i, handle, 5, 4096, 100);
  run();
  ASSERT_EQ(a.datapath.next_deadline(), a.now + milliseconds(20));
  advance(milliseconds(20));
  run();
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 3u);
  const std::vector<Cqe> sends = ours.sends();
  ASSERT_THAT(sends, SizeIs(3));
  EXPECT_EQ(sends[0].status, WcStatus::kSuccess) << "lost like any datagram";
  a.datagram(ours, 4, handle, 5, 4096, 100);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1)) << "nobody waits a second time";
}

TEST_F(NextHopTest, DatagramsToAFailedNeighbourAreDroppedAtOnce) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  const auto to_b = hop(kFailed);
  const uint32_t handle = a.tables.address_handles.add(over(a, b.address, to_b));
  for (uint64_t i = 0; i < 3; ++i) a.datagram(ours, i, handle, 5, 4096, 100);
  run();
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 3u);
  EXPECT_THAT(ours.sends(), SizeIs(3));
  EXPECT_EQ(asked(), 1u) << "the kernel is to try again";
  to_b->set(kUsable);
  a.datagram(ours, 3, handle, 5, 4096, 100);
  run();
  EXPECT_EQ(a.count(Counter::kDropNoNeighbour), 3u);
}

TEST_F(NextHopTest, KernelIsAskedOncePerInterval) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  const auto to_b = hop(kFailed);
  const uint32_t handle = a.tables.address_handles.add(over(a, b.address, to_b));
  size_t questions = 0;
  for (int i = 0; i < 1000; ++i) {  // one datagram a millisecond
    a.datagram(ours, 1, handle, 5, 4096, 100);
    run();
    ours.sends();
    questions += asked();
    advance(milliseconds(1));
  }
  EXPECT_EQ(questions, 10u);
}

TEST_F(NextHopTest, DeadAddressesDoNotSlowOtherFlows) {
  std::vector<Station*> dead;
  for (int i = 0; i < 8; ++i) {
    dead.push_back(&a.add(QpType::kUd));
    a.connect(*dead.back());
    const uint32_t handle = a.tables.address_handles.add(over(a, b.address, hop()));
    for (uint64_t j = 0; j < 32; ++j) a.datagram(*dead.back(), j, handle, 5, 4096, 100);
  }
  Station& alive = connected(hop(kUsable));
  for (uint64_t i = 0; i < 32; ++i) write(alive, i);
  a.run();
  EXPECT_EQ(a.end->counters().tx_packets, 32u) << "in the same round";
  run();
  EXPECT_THAT(alive.sends(), SizeIs(32));
  for (Station* one : dead) EXPECT_THAT(one->sends(), IsEmpty());
}

TEST_F(NextHopTest, AcknowledgementWaitsForTheWayBack) {
  const auto to_a = std::make_shared<NextHop>(1, a.address);
  Station& ours = connected(hop(kUsable), to_a);
  write(ours, 1);
  run();
  EXPECT_THAT(ours.sends(), IsEmpty());
  if (to_a->set(kUsable)) b.datapath.next_hops().note_change();
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
  EXPECT_EQ(a.end->counters().tx_packets, 1u) << "nothing had to be asked for again";
}

TEST_F(NextHopTest, NewMacAddressCountsForTheNextPacketOfEveryQp) {
  const auto to_b = hop(kUsable);
  std::vector<Station*> all;
  for (int i = 0; i < 3; ++i) all.push_back(&connected(to_b));
  std::vector<std::vector<uint8_t>> frames;
  a.end->record_sent(&frames);
  for (Station* one : all) write(*one, 1);
  run();
  ASSERT_THAT(frames, SizeIs(3));
  for (const auto& frame : frames) EXPECT_EQ(destination_mac(frame), kMac);
  frames.clear();
  to_b->set({NeighbourState::kStale, kOther});
  for (Station* one : all) write(*one, 2);
  run();
  ASSERT_THAT(frames, SizeIs(3));
  for (const auto& frame : frames) EXPECT_EQ(destination_mac(frame), kOther);
}

// A gateway that is replaced while QPs are drained, or have failed to send.
TEST_F(NextHopTest, DrainedAndFailedQpsFollowAsWell) {
  const auto to_b = hop(kUsable);
  Station &drained = connected(to_b), &failed = a.add(QpType::kUc), &theirs = b.add(QpType::kUc);
  a.connect(failed, b.address, theirs.qpn());
  b.connect(theirs, a.address, failed.qpn());
  failed.qp->path = over(a, b.address, to_b);
  transport::QpAttributes state;
  state.state = QpState::kSqd;
  ASSERT_EQ(drained.qp->transport->modify(state, transport::kQpState, a.now), 0);
  queue::SendWqe wrong = work(WrOpcode::kSend, 9);
  wrong.sge_count = 1;
  queue::SendQueue::Slot slot;
  ASSERT_TRUE(failed.qp->sq.reserve(0, slot));
  *slot.wqe = wrong;
  *slot.sges = {0, 10, a.key + 1};  // no such key
  failed.qp->sq.publish(1);
  a.datapath.ring(*failed.qp);
  run();
  ASSERT_EQ(failed.qp->transport->state(), QpState::kSqe);

  to_b->set({NeighbourState::kUsable, kOther});
  state.state = QpState::kRts;
  for (Station* one : {&drained, &failed}) {
    ASSERT_EQ(one->qp->transport->modify(state, transport::kQpState, a.now), 0);
    a.datapath.reschedule(*one->qp, a.now);
  }
  std::vector<std::vector<uint8_t>> frames;
  a.end->record_sent(&frames);
  write(drained, 1);
  a.post(failed, work(WrOpcode::kSend, 2), 0, 10);
  run();
  ASSERT_THAT(frames, SizeIs(2));
  for (const auto& frame : frames) EXPECT_EQ(destination_mac(frame), kOther);
}

TEST_F(NextHopTest, QpThatWaitsMayBeDestroyedOrSentElsewhere) {
  const auto nowhere = hop();
  Station &first = connected(nowhere), &second = connected(nowhere);
  write(first, 1);
  write(second, 2);
  run();
  a.destroy(first);
  second.qp->stop_waiting();
  second.qp->path = over(a, b.address, hop(kUsable));  // as modify_qp() does
  a.datapath.reschedule(*second.qp, a.now);
  run();
  EXPECT_THAT(second.sends(), SizeIs(1));
  advance(seconds(4));
  run();
  EXPECT_FALSE(a.datapath.next_hops().has_waiters());
  EXPECT_EQ(nowhere.use_count(), 2) << "ours, and that in wanted: no path holds it";
}

TEST_F(NextHopTest, AddressHandleMayBeDestroyedWhileADatagramWaits) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  const uint32_t handle = a.tables.address_handles.add(over(a, b.address, hop()));
  a.datagram(ours, 1, handle, 5, 4096, 100);
  run();
  ASSERT_TRUE(a.tables.address_handles.remove(handle));
  advance(milliseconds(20));
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
  EXPECT_EQ(a.count(Counter::kDropNoAddressHandle), 1u);
}

TEST_F(NextHopTest, RouteOverAnotherNextHopSetsWaitersFree) {
  Station& ours = connected(hop());
  write(ours, 1);
  run();
  EXPECT_THAT(ours.sends(), IsEmpty());
  ours.qp->path.to->route.next_hop = hop(kUsable);
  a.datapath.next_hops().note_change();
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
}

TEST_F(NextHopTest, ManyDeadAddressesAreAskedForWithinABound) {
  Station& ours = a.add(QpType::kUd);
  a.connect(ours);
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto dead =
        std::make_shared<NextHop>(1, v4(10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)), kFailed);
    const uint32_t handle = a.tables.address_handles.add(over(a, dead->address, dead));
    a.datagram(ours, i, handle, 5, 4096, 100);
    run();
    ASSERT_THAT(ours.sends(), SizeIs(1));
  }
  EXPECT_EQ(asked(), NextHopWaits::kMostWanted);
}

}  // namespace
}  // namespace uroce::engine::test

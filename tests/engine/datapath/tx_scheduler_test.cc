// SPDX-License-Identifier: BSD-2-Clause
// Where packets go, and which do not leave. No threads, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/engine/datapath/cable_rig.h"
#include "tests/engine/datapath/run_io.h"

namespace uroce::engine::test {
namespace {

using queue::WcStatus;
using testing::ElementsAre;
using testing::Field;
using testing::SizeIs;

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

// A packet I/O that sends in runs, to destinations that the kernel routes to.
class WireOfRuns : public Cable {
 protected:
  static constexpr uint32_t kRun = 62;

  WireOfRuns() {
    auto wire = std::make_unique<RunIo>(kRun * (wire::kUdpSize + wire::kBthSize + kMtu + wire::kIcrcSize));
    wire_ = wire.get();
    a.datapath.attach(std::move(wire), nullptr);
    a.key = a.tables.regions.add(
        {.base = bytes_.data(), .iova = 0, .length = bytes_.size(), .access = memory::kLocalWrite, .pd = kPd});
  }
  Station& connected(QpType type) {
    Station& station = a.add(type);
    a.connect(station, b.address, 5);
    Path path = a.path_to(b.address);
    path.to = to_;
    EXPECT_EQ(a.datapath.modify(*station.qp, {}, 0, path, a.now), 0);
    return station;
  }
  // Packets that leave until nothing does any more.
  size_t sent() {
    wire_->bursts.clear();
    while (a.run()) {
    }
    return std::accumulate(wire_->bursts.begin(), wire_->bursts.end(), size_t{0});
  }

  static constexpr uint32_t kMtu = transport::test::kMtu;
  Bytes bytes_ = pattern(1024 * kMtu, 3);
  RunIo* wire_;
  std::shared_ptr<Destination> to_ = std::make_shared<Destination>(a.address, b.address);
};

// Of a long message four runs are in flight; of packets that leave one by one, no more than usual (128).
TEST_F(WireOfRuns, RunsThatTheKernelRefusesShortenTheWindow) {
  for (const bool refused : {false, true}) {
    wire_->refuses_runs = refused;
    a.post(connected(QpType::kRc), work(WrOpcode::kSend, 1), 0, 1024 * kMtu);
    EXPECT_EQ(sent(), (refused ? 2 : 4) * kRun);
  }
}

}  // namespace
}  // namespace uroce::engine::test

// SPDX-License-Identifier: BSD-2-Clause
// Packets on their way to the packet I/O: when they leave, that they wait while it has no room, and what becomes of
// them when memory that they point to goes away. No threads, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/datapath/cable_rig.h"

namespace uroce::engine::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// --- kicks -----------------------------------------------------------------------------------------------------------

// A wire whose kernel is short of something for some kicks.
class PuttingOff final : public io::PacketIo {
 public:
  explicit PuttingOff(int& kicks) : kicks_(kicks) {}
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return --kicks_ <= 0; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

 private:
  int& kicks_;
};

// Nothing else is to be done meanwhile.
TEST_F(Cable, KicksThatWerePutOffAreRepeated) {
  Station& station = a.add(QpType::kUd);
  a.connect(station);
  const uint32_t handle = a.handle_to(b.address);
  int kicks = 6;
  a.datapath.attach(std::make_unique<PuttingOff>(kicks), nullptr);
  a.datagram(station, 1, handle, 17, 0, 8);
  while (kicks > 0) {
    const int before = kicks;
    a.run();
    ASSERT_LT(kicks, before) << "not kicked again";
    EXPECT_EQ(a.datapath.backpressured(), kicks > 0);
    EXPECT_EQ(a.datapath.unfinished(), kicks > 0);
  }
  EXPECT_THAT(station.sends(), SizeIs(1));
  a.run();
  EXPECT_EQ(kicks, 0) << "kicked without need";
}

// --- posts -----------------------------------------------------------------------------------------------------------

// A wire that counts: packets, and kicks that had any.
class Counting final : public io::PacketIo {
 public:
  size_t receive(std::span<io::RxPacket>) override {
    ++looks;
    return 0;
  }
  size_t send(std::span<io::TxPacket> burst) override {
    packets += burst.size();
    queued_ = true;
    return burst.size();
  }
  bool flush() override {
    if (std::exchange(queued_, false)) ++kicks;
    return true;
  }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

  size_t packets = 0;
  int kicks = 0, looks = 0;

 private:
  bool queued_ = false;
};

// Datagrams to the wire, posted one by one.
class Posts : public Cable {
 protected:
  Posts() {
    auto its_wire = std::make_unique<Counting>();
    wire = its_wire.get();
    a.datapath.attach(std::move(its_wire), nullptr);
    a.connect(station);
  }
  void queue() { a.datagram(station, 1, handle, 17, 0, 8); }
  void post() {
    queue();
    a.run(Datapath::Caller::kPosting);
  }
  // Until posts fill the pipe.
  void fill() {
    while (!a.datapath.unfinished()) post();
  }

  Counting* wire;
  Station& station = a.add(QpType::kUd);
  const uint32_t handle = a.handle_to(b.address);
};

TEST_F(Posts, OnlySend) {
  post();
  EXPECT_EQ(wire->packets, 1u);
  EXPECT_EQ(wire->looks, 0);
  a.run(Datapath::Caller::kPolling);
  EXPECT_EQ(wire->looks, 1);
}

TEST_F(Posts, LeaveAtOnceAFewTimesAndThenInCompany) {
  for (int i = 1; i <= 4; ++i) {
    post();
    EXPECT_EQ(wire->kicks, i);
  }
  for (size_t i = 1; i < 16; ++i) {
    post();
    EXPECT_EQ(wire->packets, 4u);
    EXPECT_TRUE(a.datapath.unfinished());
    EXPECT_FALSE(a.datapath.backpressured());
  }
  post();
  EXPECT_EQ(wire->packets, 20u);
  EXPECT_EQ(wire->kicks, 5);
  EXPECT_FALSE(a.datapath.unfinished());
}

class WhatWaits : public Posts, public testing::WithParamInterface<Datapath::Caller> {};

TEST_P(WhatWaits, LeavesWithTheNextRoundThatIsNoPost) {
  fill();
  const size_t before = wire->packets;
  a.run(GetParam());
  EXPECT_EQ(wire->packets, before + 1);
  EXPECT_FALSE(a.datapath.unfinished());
  const int kicks = wire->kicks;
  post();
  EXPECT_EQ(wire->kicks, kicks + 1) << "the pipe is empty again";
}

INSTANTIATE_TEST_SUITE_P(, WhatWaits, testing::Values(Datapath::Caller::kPolling, Datapath::Caller::kBackground));

TEST_F(Posts, LeaveBeforeASetUpCall) {
  fill();
  const size_t before = wire->packets;
  a.datapath.flush();
  EXPECT_EQ(wire->packets, before + 1);
  EXPECT_FALSE(a.datapath.unfinished());
}

// A burst makes room for the next one without a kick.
TEST_F(Posts, OfMoreThanABurstLeaveAltogether) {
  fill();
  for (int i = 0; i < 40; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->packets, 45u);
  EXPECT_EQ(wire->kicks, 5);
}

// Sending that much takes so long that the acknowledgements of it are not left for the next poll.
TEST_F(Posts, OfManyPacketsTakeArrivalsToo) {
  for (int i = 0; i < 31; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->looks, 0);
  for (int i = 0; i < 32; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->looks, 1);
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

}  // namespace
}  // namespace uroce::engine::test

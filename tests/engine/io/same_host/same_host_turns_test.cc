// SPDX-License-Identifier: BSD-2-Clause
// The network and the memory of other processes side by side: what comes first, and when each is looked into.
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "engine/io/frames_and_sockets.h"
#include "tests/engine/io/same_host/same_host_rig.h"
#include "tests/engine/io/stub_io.h"

namespace uroce::io::test {
namespace {

// The network holds more than one receive() brings.
TEST_F(SameHostTest, WhatWentByTheNetworkBeforeArrivesBefore) {
  TestBurst burst = burst_of(250);
  ASSERT_EQ(ours.io->send(burst.packets().first(200)), 200u);
  meet();
  EXPECT_EQ(theirs.receive().size(), 64u) << "the peer is there and has sent nothing";
  ASSERT_EQ(ours.io->send(burst.packets().subspan(200)), 50u);
  EXPECT_EQ(sent_by_network(), 200u);
  uint32_t arrived = 64;
  for (int i = 0; i < 100 && arrived < 250; ++i) {
    for (const RxPacket& packet : theirs.receive()) ASSERT_EQ(psn_of(packet), arrived++);
  }
  EXPECT_EQ(arrived, 250u);
}

TEST_F(SameHostTest, ABusyNetworkDoesNotKeepANewPeerWaiting) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(64);
  for (TxPacket& packet : by_network.packets()) packet.to_this_host = false;
  ours.io->send(by_memory.packets());
  bool arrived = false;
  for (int i = 0; i < 1000 && !arrived; ++i) {
    ours.io->send(by_network.packets());
    for (const RxPacket& packet : theirs.receive()) arrived |= packet.without_icrc;
  }
  EXPECT_TRUE(arrived);
}

TEST_F(SameHostTest, BothWaysGetTheirTurn) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(1);
  by_network.packets()[0].to_this_host = false;
  ours.io->send(by_network.packets());
  bool arrived = false;
  for (int i = 0; i < 100 && !arrived; ++i, test_time += std::chrono::microseconds(1)) {
    ours.io->send(by_memory.packets());
    for (const RxPacket& packet : theirs.receive()) arrived |= !packet.without_icrc;
  }
  EXPECT_TRUE(arrived) << "the network is not forgotten over the memory";
}

// A look into the network may be a system call, and a program that spins makes many.
TEST_F(SameHostTest, AQuietNetworkIsLeftAloneForAWhile) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(1);
  by_network.packets()[0].to_this_host = false;
  ours.io->send(by_memory.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u);
  while (!theirs.receive().empty()) continue;
  test_time += QuietTurns::kQuiet;
  for (uint32_t look = 0; look < QuietTurns::kLooks; ++look) EXPECT_TRUE(theirs.receive().empty());  // its turn
  ours.io->send(by_network.packets());
  for (int look = 0; look < 1000; ++look) EXPECT_TRUE(theirs.receive().empty());
  theirs.io->prepare_to_wait();
  EXPECT_EQ(theirs.receive().size(), 1u) << "after a sleep it is not known what there is";
}

TEST(SameHost, PassesOnLooks) {
  auto network = std::make_unique<StubIo>(3, 2000);
  StubIo& stub = *network;
  SameHost io(std::move(network), SameHost::Config{.range_bits = kRangeBits,
                                                   .meet = [](uint32_t) {},
                                                   .bury = [] {},
                                                   .peers = std::make_shared<PeerExchange>(),
                                                   .now = [] { return test_time; }});
  expect_passes_on_looks(io, stub);
}

// The network is frames, and sockets beside them that are looked into now and then only.
class BesideFrames : public SameHostTest {
 protected:
  BesideFrames() : BesideFrames(FramesAndSockets::Copies::kNone) {}
  explicit BesideFrames(FramesAndSockets::Copies copies) {
    const auto now = [] { return test_time; };
    auto frames = make_memory_link(), sockets = make_memory_link();
    kernel = std::move(sockets.second);
    auto both = std::make_unique<FramesAndSockets>(std::move(frames.first), std::move(sockets.first), copies, +now);
    both->set_local_addresses({&local, 1});
    reader = std::make_unique<SameHost>(
        std::move(both),
        SameHost::Config{
            .range_bits = kRangeBits, .meet = [](uint32_t) {}, .bury = [] {}, .peers = theirs.peers, .now = +now});
  }
  std::vector<RxPacket> receive() { return theirs.receive(*reader); }
  // Packets with PSNs from 0 on.
  void expect_in_order(uint32_t count) {
    uint32_t arrived = 0;
    for (int i = 0; i < 100 && arrived < count; ++i) {
      for (const RxPacket& packet : receive()) ASSERT_EQ(psn_of(packet), arrived++);
    }
    EXPECT_EQ(arrived, count);
  }

  const wire::IpAddress local = envelope_v4().source;
  std::unique_ptr<MemoryEnd> kernel;  // gives to the sockets
  std::unique_ptr<SameHost> reader;   // in the place of theirs.io
};

TEST_F(BesideFrames, WhatWentThroughSocketsBesideFramesArrivesBefore) {
  EXPECT_TRUE(receive().empty());
  meet();
  TestBurst burst = burst_of(200);
  ASSERT_EQ(kernel->send(burst.packets().first(100)), 100u);
  ASSERT_EQ(ours.io->send(burst.packets().subspan(100)), 100u);
  expect_in_order(200);
}

class BesideCopies : public BesideFrames {
 protected:
  BesideCopies() : BesideFrames(FramesAndSockets::Copies::kOfAll) {}
};

// What peers sent is behind what the sockets have of other hosts, as much as they hold, which no call gets to the end
// of.
TEST_F(BesideCopies, WhatWentThroughSocketsArrivesBefore) {
  EXPECT_TRUE(receive().empty());
  meet();
  TestBurst of_others, burst = burst_of(20);
  for (uint32_t psn = 0; psn < 1000; ++psn) of_others.add(envelope_v6(), psn, 8);
  ASSERT_EQ(kernel->send(of_others.packets()), 1000u);
  ASSERT_EQ(kernel->send(burst.packets().first(10)), 10u);
  ASSERT_EQ(ours.io->send(burst.packets().subspan(10)), 10u);
  expect_in_order(20);
}

TEST_F(BesideCopies, ABusyNetworkDoesNotKeepANewPeerWaiting) {
  EXPECT_TRUE(receive().empty());
  meet();
  TestBurst of_others, burst = burst_of(1);
  for (uint32_t psn = 0; psn < 256; ++psn) of_others.add(envelope_v6(), psn, 8);  // more than the looks of one call
  ASSERT_EQ(ours.io->send(burst.packets()), 1u);
  bool arrived = false;
  for (int i = 0; i < 10'000 && !arrived; ++i) {
    kernel->send(of_others.packets());
    arrived = !receive().empty();
  }
  EXPECT_TRUE(arrived);
}

// A peer that begins while they are looked for has sent by the network later than others.
TEST_F(BesideCopies, AlsoOfAPeerThatBeginsMeanwhile) {
  EXPECT_TRUE(receive().empty());
  meet();
  TestBurst of_others, burst = burst_of(20);
  for (uint32_t psn = 0; psn < 200; ++psn) of_others.add(envelope_v6(), psn, 8);
  ASSERT_EQ(kernel->send(of_others.packets()), 200u);
  ASSERT_EQ(ours.io->send(burst.packets().first(1)), 1u);
  EXPECT_TRUE(receive().empty());  // copies
  Process third{make_memory_link().first};
  PeerEnd one, other;
  ASSERT_EQ(make_peers(one, other), 0);
  ASSERT_TRUE(third.peers->add(kTheirs, std::move(one)));
  ASSERT_TRUE(theirs.peers->add(kTheirs + 1, std::move(other)));
  ASSERT_EQ(kernel->send(of_others.packets()), 200u);
  ASSERT_EQ(kernel->send(burst.packets().subspan(5, 1)), 1u);
  ASSERT_EQ(third.io->send(burst.packets().subspan(6, 1)), 1u);
  std::vector<uint32_t> arrived;
  for (int i = 0; i < 100 && arrived.size() < 3; ++i) {
    for (const RxPacket& packet : receive()) arrived.push_back(psn_of(packet));
  }
  ASSERT_EQ(arrived.size(), 3u);
  EXPECT_EQ(arrived.front(), 5u);
}

// Neither pause is added to the other one's.
TEST_F(BesideFrames, AfterAQuietWhileThereIsOnePause) {
  meet();
  TestBurst burst = burst_of(2);
  const auto spin = [&](Duration time) {
    const Time end = test_time + time;
    for (; test_time < end; test_time += std::chrono::microseconds(1)) {
      if (!receive().empty()) return true;
    }
    return false;
  };
  ASSERT_EQ(ours.io->send(burst.packets().first(1)), 1u);
  ASSERT_TRUE(spin(QuietTurns::kPause));
  EXPECT_FALSE(spin(2 * QuietTurns::kQuiet));
  ASSERT_EQ(kernel->send(burst.packets().subspan(1)), 1u);
  EXPECT_TRUE(spin(QuietTurns::kPause + std::chrono::microseconds(QuietTurns::kLooks)));
}

}  // namespace
}  // namespace uroce::io::test

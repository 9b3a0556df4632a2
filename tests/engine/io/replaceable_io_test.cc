// SPDX-License-Identifier: BSD-2-Clause
// The inner packet I/O is taken out and another one put in; links in memory.
#include "engine/io/replaceable_io.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <utility>

#include "engine/io/memory_link.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/stub_io.h"
#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

TestBurst burst_of(uint32_t packets) {
  TestBurst burst;
  for (uint32_t psn = 0; psn < packets; ++psn) burst.add(envelope_v4(), psn, 100);
  return burst;
}

TEST(ReplaceableIo, IsWhatIsInIt) {
  auto [inner, peer] = make_memory_link({.max_udp_length = 2000});
  ReplaceableIo io(std::move(inner));
  EXPECT_TRUE(io.is_open());
  EXPECT_EQ(io.max_udp_length(), 2000u);
  exchange(io, *peer, burst_of(100));
  exchange(*peer, io, burst_of(100));
  EXPECT_EQ(io.counters().tx_packets, 100u);
  EXPECT_EQ(io.counters().rx_packets, 100u);
}

TEST(ReplaceableIo, PassesOnLooks) {
  auto inner = std::make_unique<StubIo>(3, 2000);
  StubIo& stub = *inner;
  ReplaceableIo io(std::move(inner));
  expect_passes_on_looks(io, stub);
  io.take();
  io.look_everywhere();
  EXPECT_TRUE(io.looked_everywhere()) << "there is nothing";
}

TEST(ReplaceableIo, WithoutOnePacketsAreLostAndCounted) {
  auto [inner, peer] = make_memory_link({.max_udp_length = 2000});
  ReplaceableIo io(std::move(inner));
  exchange(io, *peer, burst_of(5));
  const std::unique_ptr<PacketIo> former = io.take();
  ASSERT_TRUE(former);
  EXPECT_FALSE(io.is_open());
  EXPECT_FALSE(io.take());
  TestBurst lost = burst_of(7);
  EXPECT_EQ(io.send(lost.packets()), 7u) << "nobody waits for room";
  EXPECT_TRUE(io.flush() && io.prepare_to_wait() && !io.left_over());
  EXPECT_TRUE(io.wait_descriptors().empty());
  EXPECT_EQ(peer->send(lost.packets()), 7u);
  std::array<RxPacket, 8> received;
  EXPECT_EQ(io.receive(received), 0u);
  EXPECT_EQ(peer->receive(received), 0u);
  EXPECT_EQ(io.max_udp_length(), 2000u);
  EXPECT_EQ(io.counters().tx_packets, 5u);
  EXPECT_EQ(io.counters().tx_errors, 7u);
}

// Counters never go back.
TEST(ReplaceableIo, AnotherOneTakesItsPlace) {
  auto [first, first_peer] = make_memory_link({.max_udp_length = 2000});
  auto [second, second_peer] = make_memory_link({.max_udp_length = 3000});
  ReplaceableIo io(std::move(first));
  exchange(io, *first_peer, burst_of(5));
  io.take();
  io.put(std::move(second));
  EXPECT_TRUE(io.is_open());
  EXPECT_EQ(io.max_udp_length(), 3000u);
  exchange(io, *second_peer, burst_of(6));
  exchange(*second_peer, io, burst_of(3));
  EXPECT_EQ(io.counters().tx_packets, 11u);
  EXPECT_EQ(io.counters().rx_packets, 3u);
  EXPECT_EQ(io.counters().tx_errors, 0u);
}

TEST(ReplaceableIo, BrokenFramesOfTheNextOneAreSeenToo) {
  auto [first, first_peer] = make_memory_link();
  auto [second, second_peer] = make_memory_link();
  MemoryEnd* const inner = second.get();
  ReplaceableIo io(std::move(first));
  int malformed = 0;
  io.observe_malformed([&](std::span<const uint8_t>, wire::FrameError) { ++malformed; });
  io.take();
  io.put(std::move(second));
  const std::array<uint8_t, 60> rubbish{};
  ASSERT_TRUE(inner->inject_frame(rubbish));
  std::array<RxPacket, 4> received;
  EXPECT_EQ(io.receive(received), 0u);
  EXPECT_EQ(malformed, 1);
}

}  // namespace
}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/memory_link.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <thread>
#include <utility>
#include <vector>

#include "engine/io/steering.h"
#include "tests/engine/io/test_packet.h"
#include "wire/bth.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

TEST(MemoryLink, PacketArrivesAtTheOtherEndWithExactBytes) {
  auto [a, b] = make_memory_link();
  TestBurst burst;
  burst.add(envelope_v4(), 1, 0);
  burst.add(envelope_v4(), 2, 1);
  burst.add(envelope_v6(), 3, 1023, 5);
  burst.add(envelope_v6(), 4, 4096, io::TxPacket::kMaxFragments);
  ASSERT_EQ(a->send(burst.packets()), burst.size());
  a->flush();

  std::array<RxPacket, 8> received;
  for (RxPacket& place : received) place.without_icrc = true;  // as others have left it
  ASSERT_EQ(b->receive(received), burst.size());
  for (size_t i = 0; i < burst.size(); ++i) burst.expect_arrived(i, received[i]);
  EXPECT_EQ(a->receive(received), 0u);
  EXPECT_EQ(b->receive(received), 0u);
  EXPECT_EQ(a->counters().tx_packets, burst.size());
  EXPECT_EQ(b->counters().rx_packets, burst.size());
  EXPECT_EQ(a->counters().tx_bytes, b->counters().rx_bytes);
}

TEST(MemoryLink, EverySendHasItsOwnIpId) {
  auto [a, b] = make_memory_link();
  TestBurst burst;
  burst.add(envelope_v4(), 1, 8);
  burst.add(envelope_v4(), 2, 8);
  a->send(burst.packets());
  std::array<RxPacket, 2> received;
  ASSERT_EQ(b->receive(received), 2u);
  EXPECT_NE(received[0].envelope.ip_id, received[1].envelope.ip_id);
}

TEST(MemoryLink, FullQueueIsBackpressureUntilTheReceiverReturnsThePackets) {
  auto [a, b] = make_memory_link({.queue_capacity = 3});
  TestBurst burst;
  for (uint32_t psn = 0; psn < 5; ++psn) burst.add(envelope_v4(), psn, 100);
  EXPECT_EQ(a->send(burst.packets()), 3u);
  EXPECT_EQ(a->counters().tx_backpressure, 1u);

  std::array<RxPacket, 2> received;
  ASSERT_EQ(b->receive(received), 2u);
  EXPECT_EQ(a->send(burst.packets().subspan(3)), 0u);  // the views are still with the receiver
  burst.expect_arrived(0, received[0]);
  burst.expect_arrived(1, received[1]);

  ASSERT_EQ(b->receive(received), 1u);
  burst.expect_arrived(2, received[0]);
  EXPECT_EQ(a->send(burst.packets().subspan(3)), 2u);
  ASSERT_EQ(b->receive(received), 2u);
  burst.expect_arrived(3, received[0]);
  burst.expect_arrived(4, received[1]);
}

// Fails below ThreadSanitizer.
TEST(MemoryLink, EachEndMayHaveAThreadOfItsOwn) {
  constexpr uint32_t kSent = 200;
  auto [a, b] = make_memory_link({.queue_capacity = 4});
  TestBurst burst;
  for (uint32_t psn = 0; psn < kSent; ++psn) burst.add(envelope_v4(), psn, 10 * psn);
  std::thread sender([&a = *a, &burst] {
    for (size_t sent = 0; sent < kSent;) {
      sent += a.send(burst.packets().subspan(sent, std::min<size_t>(3, kSent - sent)));
      std::this_thread::yield();
    }
  });
  for (size_t arrived = 0; arrived < kSent;) {
    std::array<RxPacket, 2> received;
    const size_t count = b->receive(received);
    for (size_t i = 0; i < count; ++i) burst.expect_arrived(arrived++, received[i]);
    std::this_thread::yield();
  }
  sender.join();
}

TEST(MemoryLink, LoopReceivesWhatItSends) {
  auto loop = make_memory_loop();
  EXPECT_TRUE(loop->prepare_to_wait());
  TestBurst burst;
  burst.add(envelope_v4(), 7, 1024, 3);
  ASSERT_EQ(loop->send(burst.packets()), 1u);
  EXPECT_FALSE(loop->prepare_to_wait());
  std::array<RxPacket, 4> received;
  ASSERT_EQ(loop->receive(received), 1u);
  burst.expect_arrived(0, received[0]);
  EXPECT_TRUE(loop->prepare_to_wait());
}

wire::Qpn destination(const RxPacket& packet) {
  return wire::BthView::at(packet.ib.data()).dest_qp();
}

// What is for no QP in particular is shard 0's.
TEST(MemoryLink, EachShardGetsThePacketsOfItsQps) {
  constexpr uint32_t kShards = 4;
  auto [near, far] = make_memory_links(kShards);
  const std::vector<std::pair<uint32_t, uint32_t>> cases = {{0x11c, 0}, {0x11d, 1}, {0x11e, 2},   {0x11f, 3},
                                                            {0, 0},     {1, 0},     {0xffffff, 0}};
  for (uint32_t from = 0; from < kShards; ++from) {
    TestBurst burst;
    for (const auto& [qpn, shard] : cases) {
      burst.add(envelope_v4(), qpn, 8);
      wire::store_be24(burst.packets().back().header.data() + 5, qpn);
    }
    ASSERT_EQ(near[from]->send(burst.packets()), cases.size());
  }
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    size_t expected = 0;
    for (const auto& [qpn, its_shard] : cases) expected += its_shard == shard ? kShards : 0;
    std::array<RxPacket, 32> received;
    ASSERT_EQ(far[shard]->receive(received), expected) << "shard " << shard;
    for (size_t i = 0; i < expected; ++i) EXPECT_EQ(shard_of(destination(received[i]), kShards), shard);
    EXPECT_TRUE(far[shard]->prepare_to_wait());
    EXPECT_EQ(near[shard]->receive(received), 0u);
  }
}

// The packets of all shards have their turns, and a sender knows whether what it sent is still there.
TEST(MemoryLink, NoShardKeepsTheOthersFromBeingReceived) {
  MemoryEnds loops = make_memory_loops(2);
  TestBurst burst;
  for (uint32_t i = 0; i < 8; ++i) {
    burst.add(envelope_v4(), i, 8);
    wire::store_be24(burst.packets().back().header.data() + 5, 0x100);
  }
  for (const auto& loop : loops) ASSERT_EQ(loop->send(burst.packets()), burst.size());
  std::array<RxPacket, 4> received;
  ASSERT_EQ(loops[0]->receive(received), 4u);
  EXPECT_TRUE(loops[0]->sent_waits() && loops[1]->sent_waits());
  ASSERT_EQ(loops[0]->receive(received), 4u);
  ASSERT_EQ(loops[0]->receive(received), 4u);
  EXPECT_TRUE(loops[0]->sent_waits() && loops[1]->sent_waits()) << "each has had a turn";
  ASSERT_EQ(loops[0]->receive(received), 4u);
  ASSERT_EQ(loops[0]->receive(received), 0u);
  EXPECT_FALSE(loops[0]->sent_waits() || loops[1]->sent_waits());
}

TEST(MemoryLink, InjectedBytesArriveInsideHeaders) {
  auto [a, b] = make_memory_link();
  std::vector<uint8_t> ib(40, 0x5a);
  ASSERT_TRUE(b->inject(envelope_v6(), ib));
  std::array<RxPacket, 1> received;
  ASSERT_EQ(b->receive(received), 1u);
  EXPECT_EQ(received[0].envelope.source, envelope_v6().source);
  EXPECT_EQ(received[0].envelope.source_port, envelope_v6().source_port);
  EXPECT_TRUE(std::equal(ib.begin(), ib.end(), received[0].ib.begin(), received[0].ib.end()));
}

TEST(MemoryLink, SentFramesCanBeRecorded) {
  auto [a, b] = make_memory_link();
  std::vector<std::vector<uint8_t>> frames;
  a->record_sent(&frames);
  TestBurst burst;
  burst.add(envelope_v4(), 1, 5);
  a->send(burst.packets());
  a->record_sent(nullptr);
  a->send(burst.packets());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].size(), 14u + 20 + 8 + 12 + 5 + 3 + 4);
  RxPacket packet;
  ASSERT_EQ(wire::parse_frame(frames[0], packet.envelope, packet.ib), wire::FrameError::kNone);
  burst.expect_arrived(0, packet);
}

// A frame cut anywhere, or with any byte destroyed, is counted or delivered within its bounds; sanitizers watch.
TEST(MemoryLink, MalformedFramesAreCounted) {
  auto [a, b] = make_memory_link();
  std::vector<std::vector<uint8_t>> frames;
  a->record_sent(&frames);
  TestBurst burst;
  burst.add(envelope_v4(), 1, 32);
  burst.add(envelope_v6(), 2, 32);
  a->send(burst.packets());
  std::array<RxPacket, 2> received;
  ASSERT_EQ(b->receive(received), 2u);

  uint64_t cut = 0;
  for (const std::vector<uint8_t>& frame : frames) {
    for (size_t size = 0; size < frame.size(); ++size, ++cut) {
      ASSERT_TRUE(b->inject_frame(std::span(frame).first(size)));
      EXPECT_EQ(b->receive(received), 0u);
    }
  }
  EXPECT_EQ(b->counters().rx_malformed, cut);

  for (const std::vector<uint8_t>& frame : frames) {
    for (size_t at = 0; at < frame.size(); ++at) {
      std::vector<uint8_t> broken = frame;
      broken[at] ^= 0xff;
      ASSERT_TRUE(b->inject_frame(broken));
      if (b->receive(received) == 1) {
        EXPECT_LE(received[0].ib.size(), frame.size());
      }
    }
  }
}

}  // namespace
}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// Packets collected for one PacketIo: how many at a time it is offered, and when their QPs are told.
#include "engine/datapath/tx_burst.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <vector>

#include "tests/engine/datapath/run_io.h"
#include "wire/ip_udp.h"

namespace uroce::engine::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// --- what is offered -------------------------------------------------------------------------------------------------

TEST(TxBurst, DoesNotPartARunThatFollows) {
  RunIo io(64 * wire::kUdpSize);
  TxBurst burst(io, [](const io::TxPacket&) {});
  const auto add = [&](size_t packets) {
    for (size_t i = 0; i < packets; ++i) {
      ASSERT_NE(burst.next(), nullptr);
      burst.commit();
    }
  };
  burst.begin_run();
  add(TxBurst::kRun);
  burst.begin_run();
  add(TxBurst::kRun);
  EXPECT_THAT(io.bursts, IsEmpty());
  burst.begin_run();
  EXPECT_THAT(io.bursts, ElementsAre(2 * TxBurst::kRun));
  add(1);
  burst.begin_run();
  add(TxBurst::kRun);
  EXPECT_THAT(io.bursts, ElementsAre(2 * TxBurst::kRun)) << "there is room for it behind the packet";
  burst.begin_run();
  EXPECT_THAT(io.bursts, ElementsAre(2 * TxBurst::kRun, TxBurst::kRun + 1));
}

// Their bytes would be made again each time.
TEST(TxBurst, OffersWhatWasRefusedOncePerFlush) {
  RunIo io(64 * wire::kUdpSize);
  io.room = 1;
  TxBurst burst(io, [](const io::TxPacket&) {});
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_NE(burst.next(), nullptr);
    burst.commit();
  }
  EXPECT_FALSE(burst.end_run());
  EXPECT_THAT(io.bursts, ElementsAre(100));
  burst.begin_run();
  EXPECT_FALSE(burst.end_run());
  while (burst.next() != nullptr) burst.commit();
  EXPECT_THAT(io.bursts, ElementsAre(100));
  io.room = 1000;
  burst.flush();
  EXPECT_THAT(io.bursts, ElementsAre(100, 127));
  EXPECT_NE(burst.next(), nullptr);
}

// --- who is told -----------------------------------------------------------------------------------------------------

// Writes down what happens to it.
class Diary final : public io::PacketIo {
 public:
  size_t send(std::span<io::TxPacket> burst) override {
    const size_t taken = std::min(burst.size(), room);
    events.push_back("takes " + std::to_string(taken));
    return taken;
  }
  bool flush() override {
    if (out_of_memory) throw std::bad_alloc();
    events.emplace_back("kick");
    return true;
  }
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4352; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

  std::vector<std::string> events;
  size_t room = 1000;
  bool out_of_memory = false;
};

class TxBurstDone : public testing::Test {
 protected:
  // `completes`: its QP wants to hear of it.
  void add(uint32_t number, bool completes = true) {
    io::TxPacket* const packet = burst.next();
    ASSERT_NE(packet, nullptr);
    packet->send_index = number;
    packet->completes = completes;
    burst.commit();
  }

  Diary io;
  bool teller_out_of_memory = false;
  TxBurst burst{io, [this](const io::TxPacket& packet) {
                  io.events.push_back("told " + std::to_string(packet.send_index));
                  if (teller_out_of_memory) throw std::bad_alloc();
                }};
};

// It is worth their latency: the other end is at work meanwhile.
TEST_F(TxBurstDone, PacketsAreOnTheirWayBeforeAnybodyIsTold) {
  add(1);
  add(2, false);
  add(3);
  burst.flush_post();
  EXPECT_THAT(io.events, ElementsAre("takes 3", "kick", "told 1", "told 3"));
  EXPECT_FALSE(burst.waiting());
}

TEST_F(TxBurstDone, OfThoseThatWereTaken) {
  for (uint32_t i = 0; i < 3; ++i) add(i);
  io.room = 2;
  burst.flush();
  EXPECT_THAT(io.events, ElementsAre("takes 2", "kick", "told 0", "told 1"));
  EXPECT_TRUE(burst.backpressured());
  io.events.clear();
  burst.flush();
  EXPECT_THAT(io.events, ElementsAre("takes 1", "kick", "told 2"));
}

TEST_F(TxBurstDone, OnceThoughMemoryRunsOut) {
  add(1);
  io.out_of_memory = true;
  EXPECT_THROW(burst.flush(), std::bad_alloc);
  EXPECT_TRUE(burst.waiting());
  io.out_of_memory = false;
  add(2);
  burst.flush();
  EXPECT_THAT(io.events, ElementsAre("takes 1", "takes 1", "kick", "told 1", "told 2"));
  EXPECT_FALSE(burst.waiting());
}

TEST_F(TxBurstDone, OnceThoughWhatWaitsIsDroppedMeanwhile) {
  add(1);
  io.out_of_memory = true;
  EXPECT_THROW(burst.flush(), std::bad_alloc);
  io.out_of_memory = false;
  add(2);
  burst.drop_if([](const io::TxPacket& packet) { return packet.send_index == 2; });
  burst.flush();
  EXPECT_THAT(io.events, ElementsAre("takes 1", "told 1", "told 2", "kick"));
}

// Their memory goes away all the same.
TEST_F(TxBurstDone, WhatIsDroppedIsGoneThoughMemoryRunsOut) {
  for (uint32_t i = 0; i < 5; ++i) add(i, i != 3);
  teller_out_of_memory = true;
  const auto is_odd = [](const io::TxPacket& packet) { return packet.send_index % 2 == 1; };
  EXPECT_THROW(burst.drop_if(is_odd), std::bad_alloc);
  teller_out_of_memory = false;
  EXPECT_THAT(io.events, ElementsAre("told 1"));
  burst.flush();
  EXPECT_THAT(io.events, ElementsAre("told 1", "takes 3", "kick", "told 0", "told 2", "told 4"));
  EXPECT_FALSE(burst.waiting());
}

}  // namespace
}  // namespace uroce::engine::test

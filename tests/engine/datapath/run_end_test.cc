// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/run_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "engine/datapath/tx_burst.h"
#include "tests/engine/datapath/run_io.h"
#include "wire/ip_udp.h"

namespace uroce::engine::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The number of packets after which the end is reached; 0: it is not.
size_t end_of(size_t bytes, const std::vector<uint32_t>& packets) {
  const RunIo io(bytes);
  RunEnd end(bytes == 0 ? nullptr : &io);
  for (size_t i = 0; i < packets.size(); ++i) {
    end.add(packets[i]);
    if (end.reached()) return i + 1;
  }
  return 0;
}

TEST(RunEnd, IsReachedAfterSoManyEqualPackets) {
  EXPECT_EQ(end_of(35, {10, 10}), 0u);
  EXPECT_EQ(end_of(35, {10, 10, 10, 10}), 3u);
}

// The first packet of a WRITE, which is longer, takes the second one with it.
TEST(RunEnd, OfWhatIsBehindAShorterPacket) {
  EXPECT_EQ(end_of(35, {17, 10, 10, 10}), 0u);
  EXPECT_EQ(end_of(35, {17, 10, 10, 10, 10}), 5u);
}

TEST(RunEnd, OfWhatALongerPacketBegins) {
  EXPECT_EQ(end_of(35, {10, 10, 17, 10, 10, 10, 10}), 7u);
  EXPECT_EQ(end_of(35, {10, 10, 17, 17, 17}), 4u);
}

TEST(RunEnd, DependsOnTheLengthOfItsPackets) {
  EXPECT_EQ(end_of(35, std::vector<uint32_t>(10, 7)), 5u);
  EXPECT_EQ(end_of(35, std::vector<uint32_t>(10, 35)), 1u);
}

TEST(RunEnd, IsNeverReachedWithoutRuns) {
  EXPECT_EQ(end_of(0, std::vector<uint32_t>(1000, 10)), 0u);
}

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

}  // namespace
}  // namespace uroce::engine::test

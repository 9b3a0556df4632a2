// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/run_end.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/engine/datapath/run_io.h"

namespace uroce::engine::test {
namespace {

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

}  // namespace
}  // namespace uroce::engine::test

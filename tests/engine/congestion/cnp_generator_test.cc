// SPDX-License-Identifier: BSD-2-Clause
// The notification point: one CNP for the first marked packet, then at the limited rate.
#include "engine/congestion/cnp_generator.h"

#include <gtest/gtest.h>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr Time at(Duration time) {
  return Time(time);
}

TEST(CnpGenerator, FirstMarkIsAnsweredAtOnce) {
  CnpGenerator generator;
  EXPECT_TRUE(generator.on_ce(at(nanoseconds(0))));
  CnpGenerator later;
  EXPECT_TRUE(later.on_ce(at(std::chrono::hours(1))));
}

TEST(CnpGenerator, NotWithinTheInterval) {
  CnpGenerator generator;
  EXPECT_TRUE(generator.on_ce(at(microseconds(10))));
  EXPECT_FALSE(generator.on_ce(at(microseconds(10))));
  EXPECT_FALSE(generator.on_ce(at(microseconds(14) - nanoseconds(1))));
  EXPECT_TRUE(generator.on_ce(at(microseconds(14))));
  EXPECT_FALSE(generator.on_ce(at(microseconds(9))));
}

// The interval begins with the CNP, not where the one before would have ended.
TEST(CnpGenerator, SavesNothingUp) {
  CnpGenerator generator;
  EXPECT_TRUE(generator.on_ce(at(microseconds(0))));
  EXPECT_TRUE(generator.on_ce(at(microseconds(103))));
  EXPECT_FALSE(generator.on_ce(at(microseconds(106))));
  EXPECT_TRUE(generator.on_ce(at(microseconds(107))));
}

// faults.md 31: every packet is marked, one per microsecond for a second. One CNP in 4 us: 250,000.
TEST(CnpGenerator, EveryPacketMarked) {
  CnpGenerator generator;
  int cnps = 0;
  for (int i = 0; i < 1'000'000; ++i) cnps += generator.on_ce(at(i * microseconds(1))) ? 1 : 0;
  EXPECT_EQ(cnps, 250'000);
}

// Marks every 3 us are answered every 6 us: a mark is not remembered.
TEST(CnpGenerator, IntervalIsAMinimum) {
  CnpGenerator generator;
  int cnps = 0;
  for (int i = 0; i < 1000; ++i) cnps += generator.on_ce(at(i * microseconds(3))) ? 1 : 0;
  EXPECT_EQ(cnps, 500);
}

TEST(CnpGenerator, OtherInterval) {
  CnpGenerator generator(microseconds(50));
  int cnps = 0;
  for (int i = 0; i < 1000; ++i) cnps += generator.on_ce(at(i * microseconds(1))) ? 1 : 0;
  EXPECT_EQ(cnps, 20);
}

}  // namespace
}  // namespace uroce::congestion

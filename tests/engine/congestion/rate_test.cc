// SPDX-License-Identifier: BSD-2-Clause
// Bytes, rates and times into each other, at the edges of what the types hold; and the meter that measures a rate.
#include "engine/congestion/rate.h"

#include <gtest/gtest.h>

#include "engine/congestion/rate_meter.h"

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Time at(Duration time) {
  return Time(time);
}

TEST(Rate, TimeForBytes) {
  EXPECT_EQ(Rate::bits(8).time_for(1), std::chrono::seconds(1));
  EXPECT_EQ(Rate::gbit(10).time_for(1250), microseconds(1));
  EXPECT_EQ(Rate::mbit(1).time_for(4096), microseconds(32768));
  EXPECT_EQ(Rate::mbit(1).time_for(0), Duration{});
}

// 8 bits at 3 Gb/s are 2.67 ns, and at 8 Gb/s exactly 1 ns.
TEST(Rate, TimeIsRoundedUp) {
  EXPECT_EQ(Rate::gbit(3).time_for(1), nanoseconds(3));
  EXPECT_EQ(Rate::gbit(8).time_for(1), nanoseconds(1));
  EXPECT_EQ(Rate::gbit(8000).time_for(1), nanoseconds(1));
}

TEST(Rate, TimeDoesNotOverflow) {
  // 2^40 bytes at 1 Tb/s: 2^43 / 10^12 s = 8.796093022208 s; the product of bits and nanoseconds is 2^43 * 10^9 > 2^72.
  EXPECT_EQ(Rate::gbit(1000).time_for(uint64_t{1} << 40), nanoseconds(8'796'093'023));
  EXPECT_EQ(Rate::bits(1).time_for(UINT64_MAX), Duration::max());
  EXPECT_EQ(Rate{}.time_for(1), Duration::max());
  EXPECT_EQ(Rate::unlimited().time_for(UINT64_MAX), Duration{});
}

TEST(Rate, OfBytesInATime) {
  EXPECT_EQ(Rate::of(1250, microseconds(1)), Rate::gbit(10));
  EXPECT_EQ(Rate::of(1, nanoseconds(3)), Rate::bits(2'666'666'666));  // rounded down
  EXPECT_EQ(Rate::of(UINT64_MAX, nanoseconds(1)), Rate::unlimited());
  EXPECT_EQ(Rate::of(0, milliseconds(1)), Rate{});
}

TEST(Rate, Scaled) {
  EXPECT_EQ(scaled(UINT64_MAX, UINT64_MAX - 1, UINT64_MAX), UINT64_MAX - 1);
  EXPECT_EQ(scaled(UINT64_MAX, 2, 1), UINT64_MAX);
  EXPECT_EQ(scaled(7, 1, 2), 3u);
  EXPECT_EQ(scaled(0, 0, 0), UINT64_MAX);
}

// --- meter -----------------------------------------------------------------------------------------------------------

// 1250 bytes every microsecond from `first` on: 10 Gb/s.
void send_10_gbit(RateMeter& meter, Duration first, int packets) {
  for (int i = 0; i < packets; ++i) meter.on_sent(1250, at(first + i * microseconds(1)));
}

TEST(RateMeter, KnowsNothingBeforeAWindowIsOver) {
  RateMeter meter;
  EXPECT_FALSE(meter.rate());
  send_10_gbit(meter, milliseconds(5), 1000);
  EXPECT_FALSE(meter.rate());
  meter.on_sent(1250, at(milliseconds(6)));
  EXPECT_EQ(meter.rate(), Rate::gbit(10));
}

TEST(RateMeter, FollowsByWholeWindows) {
  RateMeter meter;
  send_10_gbit(meter, milliseconds(5), 1001);
  // 1250 bytes every 10 us: 1 Gb/s. The packet at 6 ms has been sent already and is of this window: 101 packets in it.
  for (int i = 1; i < 100; ++i) meter.on_sent(1250, at(milliseconds(6) + i * microseconds(10)));
  EXPECT_EQ(meter.rate(), Rate::gbit(10));
  meter.on_sent(1250, at(milliseconds(7)));
  EXPECT_EQ(meter.rate(), Rate::gbit(1));
}

TEST(RateMeter, APauseEndsIt) {
  RateMeter meter;
  send_10_gbit(meter, milliseconds(5), 1001);  // the last one at 6 ms
  meter.on_sent(1250, at(milliseconds(7)));    // a millisecond is no pause yet: 1250 bytes in 1 ms
  EXPECT_EQ(meter.rate(), Rate::mbit(10));
  meter.on_sent(1250, at(milliseconds(8) + nanoseconds(1)));
  EXPECT_FALSE(meter.rate());
  send_10_gbit(meter, milliseconds(8) + nanoseconds(1), 1001);  // one packet twice at the beginning: 1001 packets
  EXPECT_EQ(meter.rate(), Rate::mbit(10'010));
}

TEST(RateMeter, TimeThatStandsStillOrGoesBack) {
  RateMeter meter;
  for (int i = 0; i < 100; ++i) meter.on_sent(1250, at(milliseconds(5)));
  meter.on_sent(1250, at(milliseconds(4)));
  EXPECT_FALSE(meter.rate());
}

}  // namespace
}  // namespace uroce::congestion

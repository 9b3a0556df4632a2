// When packets leave under a limit: the average, the burst, and changes of the rate in between.
#include "engine/congestion/pacer.h"

#include <gtest/gtest.h>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Time at(Duration time) {
  return Time(time);
}

// Sends packets of `bytes` as soon as allowed from `now` until `end`. Looks only every `granularity`.
int send_until(Pacer& pacer, uint32_t bytes, Time now, Time end, Duration granularity = nanoseconds(100)) {
  int packets = 0;
  for (; now < end; now += granularity) {
    for (; now >= pacer.resume_at(); ++packets) pacer.on_sent(bytes, now);
  }
  return packets;
}

// 1250 bytes are 1 us at 10 Gb/s. Packets leave while no more than 50 us are booked: 51 at once, then one per us.
TEST(Pacer, BurstThenRate) {
  Pacer pacer;
  pacer.set_rate(Rate::gbit(10), at(milliseconds(1)));
  EXPECT_EQ(send_until(pacer, 1250, at(milliseconds(1)), at(milliseconds(1) + nanoseconds(1))), 51);
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(1) + microseconds(1)));
  EXPECT_EQ(send_until(pacer, 1250, at(milliseconds(1) + nanoseconds(100)), at(milliseconds(2))), 999);
}

// At the floor a packet takes 10 ms, far more than the burst: one at a time.
TEST(Pacer, OnePacketAtATimeAtTheFloor) {
  Pacer pacer;
  pacer.set_rate(Rate::mbit(1), at(milliseconds(1)));
  EXPECT_EQ(send_until(pacer, 1250, at(milliseconds(1)), at(milliseconds(1) + nanoseconds(1))), 1);
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(11) - Pacer::kBurst));
}

// A caller that comes back only every 50 us, as timers of a sleeping thread do, still gets all of the rate: 1000
// packets in 1 ms, and the burst of the beginning.
TEST(Pacer, LateCallersLoseNothing) {
  Pacer pacer;
  pacer.set_rate(Rate::gbit(10), at(milliseconds(1)));
  EXPECT_EQ(send_until(pacer, 1250, at(milliseconds(1)), at(milliseconds(2) + nanoseconds(1)), Pacer::kBurst), 1051);
}

TEST(Pacer, IdleTimeGivesNoMoreThanTheBurst) {
  Pacer pacer;
  pacer.set_rate(Rate::gbit(10), at(milliseconds(1)));
  pacer.on_sent(1250, at(milliseconds(1)));
  const Time later = at(std::chrono::hours(1));
  EXPECT_EQ(send_until(pacer, 1250, later, later + nanoseconds(1)), 51);
}

// 10 ms are booked at 1 Mb/s; after 2 of them the rate is 100 times as high: the other 8 ms become 80 us.
TEST(Pacer, HigherRateShortensWhatIsBooked) {
  Pacer pacer;
  pacer.set_rate(Rate::mbit(1), at(milliseconds(1)));
  pacer.on_sent(1250, at(milliseconds(1)));
  pacer.set_rate(Rate::mbit(100), at(milliseconds(3)));
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(3) + microseconds(80) - Pacer::kBurst));
  pacer.set_rate(Rate::unlimited(), at(milliseconds(3)));
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(3) - Pacer::kBurst));
}

TEST(Pacer, LowerRateCountsFromTheNextPacket) {
  Pacer pacer;
  pacer.set_rate(Rate::mbit(100), at(milliseconds(1)));
  pacer.on_sent(1250, at(milliseconds(1)));  // 100 us
  pacer.set_rate(Rate::mbit(1), at(milliseconds(1)));
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(1) + microseconds(100) - Pacer::kBurst));
  pacer.on_sent(1250, at(milliseconds(1) + microseconds(50)));  // 10 ms
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(11) + microseconds(100) - Pacer::kBurst));
}

// What has been worked off is not booked any more, whatever the rate is then.
TEST(Pacer, RateAfterABookedTimeIsOver) {
  Pacer pacer;
  pacer.set_rate(Rate::mbit(1), at(milliseconds(1)));
  pacer.on_sent(1250, at(milliseconds(1)));
  pacer.set_rate(Rate::mbit(2), at(milliseconds(20)));
  EXPECT_EQ(pacer.resume_at(), at(milliseconds(11) - Pacer::kBurst));
}

TEST(Pacer, EndlessWaitsDoNotWrap) {
  Pacer pacer;
  pacer.set_rate(Rate{}, at(milliseconds(1)));
  for (int i = 0; i < 3; ++i) pacer.on_sent(UINT32_MAX, at(milliseconds(1)));
  EXPECT_EQ(pacer.resume_at(), kNever - Pacer::kBurst);
}

}  // namespace
}  // namespace uroce::congestion

// SPDX-License-Identifier: BSD-2-Clause
// When packets leave under a limit: the average, the burst, changes of the rate in between, and whose turn it is.
#include "engine/congestion/pacer.h"

#include <gtest/gtest.h>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint32_t kPacket = 1250;  // 1 us at 10 Gb/s, 10 ms at 1 Mb/s

class PacerTest : public testing::Test {
 protected:
  // Sends as soon as allowed for `time`. Looks only every `granularity`.
  int send_for(Duration time, Duration granularity = nanoseconds(100)) {
    int packets = 0;
    for (const Time end = now_ + time; now_ < end; now_ += granularity) {
      for (; pacer_.may_send(turn_, kPacket, now_); ++packets) pacer_.on_sent(turn_, kPacket, now_);
    }
    return packets;
  }
  // How long a sender has to wait that was refused.
  Duration wait() {
    EXPECT_FALSE(pacer_.may_send(turn_, kPacket, now_));
    const Time at = pacer_.resume_at(turn_);
    EXPECT_FALSE(pacer_.may_send(turn_, kPacket, at - nanoseconds(2)));
    Pacer copy = pacer_;
    EXPECT_TRUE(copy.may_send(turn_, kPacket, at));
    return at - now_;
  }

  Pacer pacer_;
  Turn turn_;
  Time now_{milliseconds(1)};
};

// Packets leave while no more than 50 us are booked: 51 at once, then one per us.
TEST_F(PacerTest, BurstThenRate) {
  pacer_.begin(Rate::gbit(10), now_);
  EXPECT_EQ(send_for(nanoseconds(1), nanoseconds(1)), 51);
  EXPECT_NEAR(send_for(microseconds(999)), 999, 1);
}

// At the floor a packet takes 10 ms, far more than the burst: one at a time.
TEST_F(PacerTest, OnePacketAtATimeAtTheFloor) {
  pacer_.begin(Rate::mbit(1), now_);
  EXPECT_EQ(send_for(nanoseconds(1), nanoseconds(1)), 1);
  EXPECT_NEAR(static_cast<double>(wait().count()), 10e6 - 50e3, 2);
}

// A caller that comes back only every 50 us, as timers of a sleeping thread do, still gets all of the rate: 1000
// packets in 1 ms, and the burst of the beginning.
TEST_F(PacerTest, LateCallersLoseNothing) {
  pacer_.begin(Rate::gbit(10), now_);
  EXPECT_EQ(send_for(milliseconds(1) + nanoseconds(1), Pacer::kBurst), 1051);
}

TEST_F(PacerTest, IdleTimeGivesNoMoreThanTheBurst) {
  pacer_.begin(Rate::gbit(10), now_);
  pacer_.on_sent(turn_, kPacket, now_);
  now_ += std::chrono::hours(24 * 365);
  EXPECT_EQ(send_for(nanoseconds(1), nanoseconds(1)), 51);
}

// 10 ms are booked at 1 Mb/s; after 2 of them the rate is 100 times as high: the other 8 ms become 80 us.
TEST_F(PacerTest, HigherRateShortensWhatIsBooked) {
  pacer_.begin(Rate::mbit(1), now_);
  pacer_.on_sent(turn_, kPacket, now_);
  now_ += milliseconds(2);
  pacer_.set_rate(Rate::mbit(100), now_);
  EXPECT_NEAR(static_cast<double>(wait().count()), 30e3, 2);
}

TEST_F(PacerTest, LowerRateLengthensIt) {
  pacer_.begin(Rate::mbit(100), now_);
  pacer_.on_sent(turn_, kPacket, now_);  // 100 us
  pacer_.set_rate(Rate::mbit(1), now_);
  EXPECT_NEAR(static_cast<double>(wait().count()), 10e6 - 50e3, 2);
}

// Places are taken in the order of asking, whoever asks first later; a packet of another length moves those behind it.
TEST_F(PacerTest, PlacesAreKept) {
  pacer_.begin(Rate::mbit(1), now_);
  pacer_.on_sent(turn_, kPacket, now_);
  Turn first, second;
  EXPECT_FALSE(pacer_.may_send(first, kPacket, now_));
  EXPECT_FALSE(pacer_.may_send(second, kPacket, now_));
  EXPECT_EQ(pacer_.resume_at(second) - pacer_.resume_at(first), milliseconds(10));
  now_ = pacer_.resume_at(first);
  EXPECT_FALSE(pacer_.may_send(second, kPacket, now_));
  EXPECT_FALSE(pacer_.may_send(turn_, kPacket, now_));
  EXPECT_TRUE(pacer_.may_send(first, kPacket, now_));
  pacer_.on_sent(first, 2 * kPacket, now_);
  EXPECT_EQ(pacer_.resume_at(turn_) - pacer_.resume_at(second), milliseconds(10));
  now_ = pacer_.resume_at(second);
  EXPECT_TRUE(pacer_.may_send(second, kPacket, now_));
}

TEST_F(PacerTest, ANewLimitOwesNothing) {
  pacer_.begin(Rate::mbit(1), now_);
  for (int i = 0; i < 100; ++i) pacer_.on_sent(turn_, UINT32_MAX, now_);
  Turn waits;
  EXPECT_FALSE(pacer_.may_send(waits, kPacket, now_));
  pacer_.begin(Rate::gbit(10), now_);
  EXPECT_EQ(send_for(nanoseconds(1), nanoseconds(1)), 51);
}

}  // namespace
}  // namespace uroce::congestion

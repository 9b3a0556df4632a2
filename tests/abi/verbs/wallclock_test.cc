// SPDX-License-Identifier: BSD-2-Clause
// What becomes of completion timestamps while the clocks are set, and while the thread that reads them is interrupted.
#include "abi/verbs/wallclock.h"

#include <gtest/gtest.h>

namespace uroce::verbs {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// `between`: passes after each reading.
struct Clocks {
  uint64_t monotonic = 0, wall = 0, between = 0;
} clocks;

uint64_t read(clockid_t clock) {
  const uint64_t now = clock == CLOCK_REALTIME ? clocks.wall : clocks.monotonic;
  clocks.wall += clocks.between;
  clocks.monotonic += clocks.between;
  return now;
}

class Wallclock : public testing::Test {
 protected:
  Wallclock() { clocks = {1000 * kSecond, 5000 * kSecond, 0}; }
  void pass(uint64_t ns) {
    clocks.monotonic += ns;
    clocks.wall += ns;
  }
  uint64_t polled_alone(uint64_t timestamp) {
    times_.begin_batch();
    return times_.of(timestamp);
  }
  CompletionWallclock<read> times_;
};

TEST_F(Wallclock, IsTheWallClockOfTheCompletion) {
  EXPECT_EQ(polled_alone(clocks.monotonic - 5), clocks.wall - 5);
  EXPECT_EQ(times_.of(clocks.monotonic - 3), clocks.wall - 3) << "of the same batch";
  pass(kSecond);
  EXPECT_EQ(polled_alone(clocks.monotonic - 1), clocks.wall - 1);
}

TEST_F(Wallclock, FollowsTheClockThatIsSetForwardWithTheNextBatch) {
  EXPECT_EQ(polled_alone(clocks.monotonic), clocks.wall);
  clocks.wall += 3600 * kSecond;
  EXPECT_EQ(times_.of(clocks.monotonic), clocks.wall - 3600 * kSecond);
  EXPECT_EQ(polled_alone(clocks.monotonic), clocks.wall);
}

TEST_F(Wallclock, GoesOnWhenTheClockIsSetBack) {
  const uint64_t before = polled_alone(clocks.monotonic);
  clocks.wall -= 3600 * kSecond;
  pass(7);
  EXPECT_EQ(times_.of(clocks.monotonic), before + 7);
  pass(7);
  EXPECT_EQ(polled_alone(clocks.monotonic), before + 14) << "and does not stand still";
  clocks.wall = 5;  // 1970
  pass(7);
  EXPECT_EQ(polled_alone(clocks.monotonic), before + 21);
}

// An interruption between the two clocks, as long as you like, in any batch.
TEST_F(Wallclock, DoesNotDecreaseWhereTheThreadIsInterrupted) {
  uint64_t last = 0;
  for (const uint64_t between : {kSecond, uint64_t{0}, uint64_t{50}, 10 * kSecond, uint64_t{0}}) {
    clocks.between = between;
    const uint64_t timestamp = clocks.monotonic;
    const uint64_t time = polled_alone(timestamp);
    EXPECT_GE(time, last) << between;
    EXPECT_EQ(times_.of(timestamp), time) << "of the same completion";
    last = time;
  }
}

TEST_F(Wallclock, DoesNotDecreaseWhereTimestampsDo) {
  const uint64_t first = polled_alone(1000 * kSecond);
  EXPECT_EQ(times_.of(1000 * kSecond - 400), first);
  EXPECT_EQ(times_.of(1000 * kSecond + 1), first + 1);
}

}  // namespace
}  // namespace uroce::verbs

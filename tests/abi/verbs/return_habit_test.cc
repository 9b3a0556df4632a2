// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/return_habit.h"

#include <gtest/gtest.h>

namespace uroce::verbs {
namespace {

using std::chrono::microseconds;

class ReturnHabitTest : public testing::Test {
 protected:
  // Calls until the thread is expected to come back again.
  int left_out() {
    int calls = 0;
    while (!habit.expects(now)) ++calls;
    return calls;
  }
  ReturnHabit habit;
  Time now{std::chrono::seconds(1)};
};

TEST_F(ReturnHabitTest, WhoComesBackIsExpectedTo) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(habit.expects(now));
    EXPECT_TRUE(habit.expects(now)) << "and asked twice";
    now += ReturnHabit::kSoon - microseconds(1);
    habit.taken(now);
  }
}

// The events are another thread's, or nobody's: seldom tried, and ever more seldom.
TEST_F(ReturnHabitTest, WhoFindsNoneIsNotExpectedForAWhile) {
  int before = 0;
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(habit.expects(now));
    habit.has_not_come();
    const int now_left_out = left_out();
    EXPECT_GT(now_left_out, before);
    before = now_left_out;
  }
  habit.has_not_come();
  EXPECT_EQ(left_out(), before) << "but tried now and then";
  habit.taken(now);
  EXPECT_TRUE(habit.expects(now));
  habit.has_not_come();
  EXPECT_LT(left_out(), before) << "who has come is expected again";
}

TEST_F(ReturnHabitTest, WhoIsAwayForLongHasWaited) {
  EXPECT_TRUE(habit.expects(now));
  now += ReturnHabit::kSoon;
  habit.taken(now);
  EXPECT_FALSE(habit.expects(now));
}

TEST_F(ReturnHabitTest, WhoWasNotExpectedSaysNothing) {
  habit.taken(now);
  habit.has_not_come();
  EXPECT_TRUE(habit.expects(now));
}

}  // namespace
}  // namespace uroce::verbs

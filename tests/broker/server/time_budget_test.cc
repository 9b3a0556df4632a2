// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/time_budget.h"

#include <chrono>
#include <gtest/gtest.h>

namespace uroce::broker {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kOne = 1, kOther = 2;

TEST(TimeBudget, WhoHasSpentAllWaitsForHisShare) {
  TimeBudget budget;
  Time now{1h};
  EXPECT_TRUE(budget.has_some(kOne, now));
  budget.spend(kOne, kMostTime - 1ms, now);
  EXPECT_TRUE(budget.has_some(kOne, now));
  budget.spend(kOne, 3ms, now);
  EXPECT_FALSE(budget.has_some(kOne, now));
  EXPECT_TRUE(budget.has_some(kOther, now)) << "another user";
  const Time again = budget.again(kOne, now);
  EXPECT_EQ(again, now + 2ms * kShare + kLeastShare);
  EXPECT_FALSE(budget.has_some(kOne, now + 2ms * kShare));
  EXPECT_TRUE(budget.has_some(kOne, again));
}

// However long he works it.
TEST(TimeBudget, NobodyGetsMoreThanHisShare) {
  TimeBudget budget;
  const Time begin{1h}, end = begin + 100s;
  Duration spent{};
  for (Time now = begin; now < end;) {
    if (!budget.has_some(kOne, now)) {
      now = budget.again(kOne, now);
      continue;
    }
    budget.spend(kOne, 300us, now);
    spent += 300us;
    now += 300us;
  }
  EXPECT_LE(spent, kMostTime + (end - begin) / kShare + 1ms);
  EXPECT_GE(spent, (end - begin) / kShare);
}

TEST(TimeBudget, TimeIsNotSavedUp) {
  TimeBudget budget;
  budget.spend(kOne, 1ms, Time{1h});
  const Time later{50h};
  budget.spend(kOne, kMostTime, later);
  EXPECT_FALSE(budget.has_some(kOne, later));
}

}  // namespace
}  // namespace uroce::broker

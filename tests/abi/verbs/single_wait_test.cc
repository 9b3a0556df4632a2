// SPDX-License-Identifier: BSD-2-Clause
// Who waits for one of its channels while there are events of others.
#include "abi/verbs/single_wait.h"

#include <gtest/gtest.h>

namespace uroce::verbs::test {
namespace {

class SingleWaitTest : public testing::Test {
 protected:
  void asked(const void* channel, int pending, uint32_t taken) { wait.asked(channel, pending, taken, now); }
  // `away` since it has asked.
  bool ends(const void* channel, uint32_t taken, Duration away = SingleWait::kAsleep) {
    now += away;
    return wait.ends(channel, taken, now);
  }
  SingleWait wait;
  Time now{std::chrono::seconds(1)};
  const char one{}, other{};
};

TEST_F(SingleWaitTest, WhoComesBackWhileOthersHaveEventsHasWaitedForOne) {
  EXPECT_FALSE(ends(&one, 7));
  asked(&one, 1, 7);
  EXPECT_TRUE(ends(&one, 7));
  EXPECT_FALSE(ends(&one, 7)) << "once";
  asked(&other, 1, 8);
  EXPECT_TRUE(ends(&other, 8));
}

TEST_F(SingleWaitTest, WhoHasGoneElsewhereHasNot) {
  asked(&one, 1, 7);
  EXPECT_FALSE(ends(&other, 7));
  EXPECT_FALSE(ends(&one, 7));
}

TEST_F(SingleWaitTest, NorWhereThereWasNothingElse) {
  asked(&one, 0, 7);
  EXPECT_FALSE(ends(&one, 7));
}

// Another thread looks after them.
TEST_F(SingleWaitTest, NorWhereTheOthersEventsWereTaken) {
  asked(&one, 1, 7);
  EXPECT_FALSE(ends(&one, 8));
}

// It goes through all that are readable, and this one comes first.
TEST_F(SingleWaitTest, NorWhoHasNotSlept) {
  asked(&one, 1, 7);
  EXPECT_FALSE(ends(&one, 7, SingleWait::kAsleep - std::chrono::microseconds(1)));
}

// There is an event somewhere that nobody ever takes.
TEST_F(SingleWaitTest, WhoHasOneChannelOnlyIsNotBlamedAgainAndAgain) {
  int times = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    asked(&one, 1, i);
    times += ends(&one, i);
  }
  EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace uroce::verbs::test

// SPDX-License-Identifier: BSD-2-Clause
// When a thread that waits looks for packets before it sleeps, by how long its waits have lasted.
#include "engine/datapath/spin_habit.h"

#include <gtest/gtest.h>

namespace uroce::engine {
namespace {

using std::chrono::microseconds;

struct Waiter {
  // One that lasts so long. Whether the thread looked first.
  bool wait(Duration lasts) {
    const bool looks = habit.begin(now) > Duration{};
    now += lasts;
    habit.end(now);
    return looks;
  }
  // Of so many, how many began with a look.
  int looks(int waits, Duration lasts) {
    int looked = 0;
    for (int i = 0; i < waits; ++i) looked += wait(lasts);
    return looked;
  }

  SpinHabit habit;
  Time now{std::chrono::seconds(1)};
};

TEST(SpinHabit, LooksWhileAnswersComeSoon) {
  Waiter waiter;
  EXPECT_FALSE(waiter.wait(microseconds(20)));
  EXPECT_FALSE(waiter.wait(microseconds(20)));
  EXPECT_EQ(waiter.looks(1000, microseconds(20)), 1000);
}

TEST(SpinHabit, NeverLooksWhereNothingComesForLong) {
  Waiter waiter;
  EXPECT_EQ(waiter.looks(1000, std::chrono::milliseconds(1)), 0);
  EXPECT_LE(Waiter().looks(3, microseconds(20)), 1);
}

// An idle CPU has to be woken on both sides: the first answers are late although the peer is fast.
TEST(SpinHabit, TriesWhereASleepExplainsTheDelay) {
  Waiter waiter;
  EXPECT_GT(waiter.looks(12, SpinHabit::kSoon - microseconds(1)), 4);
  waiter.looks(20, microseconds(10));
  EXPECT_EQ(waiter.looks(100, microseconds(10)), 100);
}

// It has a CPU's time and power: as good as never where it does not pay.
TEST(SpinHabit, SeldomLooksWhereThatLastsTooLong) {
  Waiter waiter;
  waiter.looks(1000, microseconds(80));
  EXPECT_LE(waiter.looks(10'000, microseconds(80)), 10'000 / 16);
  EXPECT_GT(waiter.looks(1000, microseconds(80)), 0) << "the peer may have become faster";
}

TEST(SpinHabit, OneLateAnswerChangesNothing) {
  Waiter waiter;
  waiter.looks(100, microseconds(10));
  waiter.wait(microseconds(90));
  EXPECT_EQ(waiter.looks(100, microseconds(10)), 100);
  waiter.wait(std::chrono::seconds(1));
  EXPECT_GE(waiter.looks(100, microseconds(10)), 98);
}

TEST(SpinHabit, AWaitThatHasNotBegunDoesNotEnd) {
  Waiter waiter;
  for (int i = 0; i < 10; ++i) waiter.habit.end(waiter.now);
  EXPECT_FALSE(waiter.wait(microseconds(10)));
}

// As a server that sends its answers when it has emptied its queue.
TEST(SpinHabit, DoesNotLookBeforeItSendsWhatItOwes) {
  Waiter waiter;
  waiter.looks(2, microseconds(20));
  int looks = 0;
  for (int i = 0; i < 5000; ++i) {
    looks += waiter.habit.begin_unsure(waiter.now) > Duration{};
    waiter.habit.posted();
    waiter.now += microseconds(20);
    waiter.habit.end(waiter.now);
  }
  EXPECT_LT(looks, 20);
  // As one that has sent all before.
  looks = 0;
  for (int i = 0; i < 5000; ++i) {
    waiter.habit.posted();
    looks += waiter.habit.begin_unsure(waiter.now) > Duration{};
    waiter.now += microseconds(20);
    waiter.habit.end(waiter.now);
  }
  EXPECT_GT(looks, 3000) << "it is tried again";
}

}  // namespace
}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// How often an ACK waits for an answer, by how many answers have come.
#include "engine/objects/answer_habit.h"

#include <gtest/gtest.h>

namespace uroce::engine {
namespace {

// A WRITE comes every 100 us; the application posts something after each, while its ACK still waits or too late for
// that.
struct Application {
  // Whether the ACK waits.
  bool write(bool answers_while_it_waits) {
    now += std::chrono::microseconds(100);
    const bool waits = habit.on_owed(now);
    if (waits && !answers_while_it_waits) {
      habit.on_missed();
      habit.on_posted(habit.waits_until());
    } else {
      EXPECT_EQ(habit.on_posted(now + std::chrono::microseconds(1)), waits);
    }
    return waits;
  }
  // Of so many WRITEs, how many waited, if every `answer`-th wait or none (0) ends with an answer.
  int waits(int writes, int answer) {
    int waited = 0;
    for (int i = 0; i < writes; ++i) {
      if (write(answer != 0 && (waited + 1) % answer == 0)) ++waited;
    }
    return waited;
  }

  AnswerHabit habit;
  Time now{std::chrono::seconds(1)};
};

TEST(AnswerHabit, AllWaitOfAnApplicationThatAnswers) {
  Application application;
  EXPECT_FALSE(application.write(true));
  EXPECT_EQ(application.waits(10'000, 1), 10'000);
}

// Each has cost the peer 50 us: one of 4096 at last.
TEST(AnswerHabit, FewWaitWhereNoneIsAnswered) {
  Application application;
  EXPECT_LE(application.waits(100'000, 0), 3 + 100'000 / 4096);
}

// Two sides that post when they have each other's ACK: now and then one answers since the other does not wait.
TEST(AnswerHabit, FewWaitWhereSomeAreAnswered) {
  Application application;
  EXPECT_LE(application.waits(100'000, 2), 10 + 2 * 100'000 / 4096);
}

TEST(AnswerHabit, ComesBackWhenTheApplicationDoes) {
  Application application;
  application.waits(10'000, 0);
  application.waits(4096 + 1, 1);
  EXPECT_EQ(application.waits(1000, 1), 1000);
}

}  // namespace
}  // namespace uroce::engine

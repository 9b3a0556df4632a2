// SPDX-License-Identifier: BSD-2-Clause
// How the background thread waits, decided without threads: what it has found so far is told as time goes by.
#include "engine/datapath/wait_policy.h"

#include <gtest/gtest.h>
#include <utility>

namespace uroce::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using enum WaitPolicy::Round;
using Wait = WaitPolicy::Wait;

class WaitPolicyTest : public testing::Test {
 protected:
  // A round that begins after `pause`. Application threads have polled until then if `polls`.
  Wait turn(WaitPolicy::Round round, Duration pause = microseconds(1)) {
    now += pause;
    if (polls) polled = now;
    return policy.after({.round = round,
                         .began = now,
                         .ended = now,
                         .polled_before = polled,
                         .polled = polled,
                         .attended = attended,
                         .looked = looked,
                         .sleep_expected = std::exchange(sleep_expected, false),
                         .has_spare_cpu = has_spare_cpu});
  }
  // A thread that polls until the background thread relies on it.
  void earn_trust() {
    polls = true;
    while (turn(kIdle) != Wait::kDefer) {
    }
  }
  // Packets are left to the background thread, which relies on others: how long it then does not.
  Duration disappoint() {
    polls = false;
    turn(kMoved, microseconds(500));
    const Time from = now;
    polls = true;
    while (turn(kIdle) != Wait::kDefer) {
    }
    return now - from;
  }

  Time now{seconds(1)}, polled{}, looked{seconds(1000)};
  bool polls = false, attended = false, sleep_expected = false;
  bool (*has_spare_cpu)(Time now) = nullptr;
  WaitPolicy policy{now};
};

TEST_F(WaitPolicyTest, PassiveTargetSpinsForAMomentAfterPackets) {
  turn(kMoved, seconds(1));
  EXPECT_EQ(turn(kIdle), Wait::kSpin);
  EXPECT_EQ(turn(kIdle, microseconds(28)), Wait::kSpin);
  EXPECT_EQ(turn(kIdle), Wait::kSleep);
  EXPECT_EQ(turn(kMoved), Wait::kSpin);
}

TEST_F(WaitPolicyTest, NobodySpinsWhereOthersWantToRun) {
  has_spare_cpu = [](Time) { return false; };
  EXPECT_EQ(turn(kMoved, seconds(1)), Wait::kSleep);
  has_spare_cpu = [](Time) { return true; };
  EXPECT_EQ(turn(kIdle), Wait::kSpin);
}

TEST_F(WaitPolicyTest, NobodySpinsBesideAThreadThatPolledAWhileAgo) {
  earn_trust();
  polls = false;
  EXPECT_EQ(turn(kMoved, microseconds(200)), Wait::kSleep);
  EXPECT_EQ(turn(kMoved, milliseconds(1)), Wait::kSpin);
}

TEST_F(WaitPolicyTest, ThreadsThatPollAreReliedOn) {
  polls = true;
  EXPECT_EQ(turn(kIdle), Wait::kDefer);
  EXPECT_EQ(turn(kMoved, microseconds(500)), Wait::kDefer) << "they were there";
  polls = false;
  EXPECT_EQ(turn(kIdle, microseconds(500)), Wait::kSleep) << "they have stopped, and nothing was left lying";
}

TEST_F(WaitPolicyTest, HolderOfTheLockIsTakenForAThreadThatPolls) {
  EXPECT_EQ(turn(kBusy), Wait::kDefer);
  sleep_expected = true;
  EXPECT_EQ(turn(kBusy), Wait::kMakeWay) << "not relied on, and not in its way";
}

TEST_F(WaitPolicyTest, ThreadThatIsAboutToSleepIsNotReliedOn) {
  earn_trust();
  sleep_expected = true;
  EXPECT_EQ(turn(kIdle), Wait::kSleep);
  EXPECT_EQ(turn(kIdle, milliseconds(1)), Wait::kDefer) << "it polls on after all";
}

TEST_F(WaitPolicyTest, DistrustGrowsWithEveryDisappointmentUpToASecond) {
  earn_trust();
  EXPECT_LT(disappoint(), milliseconds(5));
  Duration last{};
  for (int i = 0; i < 10; ++i) {
    const Duration distrust = disappoint();
    EXPECT_GE(distrust, last);
    last = distrust;
  }
  EXPECT_GE(last, seconds(1));
  EXPECT_LT(last, seconds(1) + milliseconds(1));
}

TEST_F(WaitPolicyTest, DistrustEndsWithARoundThatFoundThemThere) {
  earn_trust();
  for (int i = 0; i < 6; ++i) disappoint();
  turn(kMoved);
  EXPECT_LT(disappoint(), milliseconds(5));
}

TEST_F(WaitPolicyTest, ProgramThatMaySleepIsReliedOn) {
  attended = true;
  EXPECT_EQ(turn(kIdle, milliseconds(50)), Wait::kDefer);
  EXPECT_TRUE(policy.relies(now));
  EXPECT_EQ(turn(kMoved, milliseconds(1)), Wait::kDefer) << "they may just have come";
  EXPECT_EQ(turn(kIdle, milliseconds(1)), Wait::kDefer);
  polled = now;
  EXPECT_EQ(turn(kMoved, milliseconds(1)), Wait::kDefer) << "it has been there";
  EXPECT_EQ(turn(kIdle, milliseconds(1)), Wait::kDefer);
  EXPECT_EQ(turn(kMoved, milliseconds(1)), Wait::kSleep) << "it does not come, and nobody spins beside it";
  EXPECT_FALSE(policy.relies(now));
  attended = false;
  EXPECT_EQ(turn(kMoved, milliseconds(100)), Wait::kSpin);
}

TEST_F(WaitPolicyTest, NetworkIsHeardHoweverManyPacketsCome) {
  looked = now;
  for (int i = 0; i < 9; ++i) EXPECT_NE(turn(kMoved, milliseconds(1)), Wait::kLook);
  EXPECT_EQ(turn(kMoved, milliseconds(1)), Wait::kLook);
}

}  // namespace
}  // namespace uroce::engine

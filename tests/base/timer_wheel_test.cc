// SPDX-License-Identifier: BSD-2-Clause
// The timer wheel against a sorted list of deadlines, and what it promises about late, long and many timers.
#include "base/timer_wheel.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <random>
#include <vector>

namespace uroce::engine {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr size_t kAll = SIZE_MAX;
constexpr Duration kTick = TimerWheel::kTick;

struct NamedTimer : TimerWheel::Timer {
  size_t name = 0;
};
size_t name(const TimerWheel::Timer& timer) {
  return static_cast<const NamedTimer&>(timer).name;
}

class TimerWheelTest : public testing::Test {
 protected:
  TimerWheelTest() {
    wheel.expire(now, kAll, [](auto&) {});
    for (size_t i = 0; i < timers.size(); ++i) timers[i].name = i;
  }
  std::vector<size_t> expire(size_t limit = kAll) {
    std::vector<size_t> fired;
    wheel.expire(now, limit, [&](TimerWheel::Timer& timer) { fired.push_back(name(timer)); });
    return fired;
  }

  Time now{seconds(1)};
  std::vector<NamedTimer> timers{1000};
  TimerWheel wheel;
};

// Follows next_deadline() as a sleeper does.
TEST_F(TimerWheelTest, FiresAtItsDeadlineHoweverFarOff) {
  for (Duration ahead = nanoseconds(1); ahead < 24 * 365 * hours(60); ahead = 3 * ahead + nanoseconds(7)) {
    const Time deadline = now + ahead;
    wheel.set(timers[0], deadline);
    int wakes = 0;
    while (expire().empty()) {
      ASSERT_LE(wheel.next_deadline(), deadline + kTick);
      ASSERT_GT(wheel.next_deadline(), now);
      now = wheel.next_deadline();
      ASSERT_LE(++wakes, 9);
    }
    EXPECT_GE(now, deadline);
    EXPECT_LT(now, deadline + kTick);
    EXPECT_EQ(wheel.next_deadline(), kNever);
  }
}

TEST_F(TimerWheelTest, DeadlineThatHasPassedStandsForTheNextTick) {
  int fired = 0;
  const auto again = [&](TimerWheel::Timer& timer) {
    ++fired;
    wheel.set(timer, Time::min());
  };
  wheel.set(timers[0], Time{});
  for (int i = 1; i <= 3; ++i) {
    EXPECT_GT(wheel.next_deadline(), now);
    EXPECT_LE(wheel.next_deadline(), now + kTick);
    now += kTick;
    wheel.expire(now, kAll, again);
    EXPECT_EQ(fired, i) << "once in a call";
  }
}

// A virtual machine that stood still: everything is late at once.
TEST_F(TimerWheelTest, JumpOfHoursIsWorkedOffInBoundedCalls) {
  constexpr size_t kLimit = 16;
  std::mt19937 random(1);
  for (auto& timer : timers) wheel.set(timer, now + Duration(random() % Duration(hours(2)).count()));
  now += hours(5);
  size_t fired = 0, calls = 0;
  while (fired < timers.size()) {
    EXPECT_LE(wheel.next_deadline(), now);
    const size_t here = expire(kLimit).size();
    ASSERT_EQ(here, std::min(kLimit, timers.size() - fired)) << "nothing but what is due is looked at";
    fired += here;
    ++calls;
  }
  EXPECT_EQ(wheel.next_deadline(), kNever);
}

// Those that only move to another level count, too.
TEST_F(TimerWheelTest, MovesAreBoundedAsWell) {
  const Time deadline = now + seconds(10);
  for (auto& timer : timers) wheel.set(timer, deadline);
  const Time turn = now = wheel.next_deadline();
  ASSERT_LT(turn, deadline);
  expire(timers.size() - 1);
  EXPECT_LE(wheel.next_deadline(), now) << "one is left";
  expire(1);
  EXPECT_GT(wheel.next_deadline(), now);
  now = deadline + kTick;
  EXPECT_EQ(expire().size(), timers.size());
}

TEST_F(TimerWheelTest, TimersMayBeSetAndCancelledWhileOthersFire) {
  const Time deadline = now + milliseconds(3);
  for (size_t i = 0; i < 10; ++i) wheel.set(timers[i], deadline);
  now = deadline + kTick;
  std::vector<size_t> fired;
  wheel.expire(now, kAll, [&](TimerWheel::Timer& timer) {
    fired.push_back(name(timer));
    wheel.cancel(timers[9 - name(timer)]);
    wheel.set(timer, now + milliseconds(1));
  });
  EXPECT_EQ(fired, (std::vector<size_t>{0, 1, 2, 3, 4}));
  now += milliseconds(2);
  EXPECT_EQ(expire().size(), 5u);
}

TEST_F(TimerWheelTest, LaterDeadlineIsNotFiredEarly) {
  wheel.set(timers[0], now + milliseconds(1));
  wheel.set(timers[0], now + milliseconds(50));
  wheel.set(timers[0], now + milliseconds(20));
  now += milliseconds(19);
  EXPECT_TRUE(expire().empty());
  now += milliseconds(1) + kTick;
  EXPECT_EQ(expire().size(), 1u);
  wheel.set(timers[0], now + milliseconds(1));
  wheel.set(timers[0], kNever);
  now += seconds(1);
  EXPECT_TRUE(expire().empty());
  EXPECT_EQ(wheel.next_deadline(), kNever);
}

// Random deadlines, moves, cancellations, steps and limits.
class TimerWheelModel : public TimerWheelTest {
 protected:
  explicit TimerWheelModel(uint64_t seed = std::random_device()()) : random_(seed) {
    RecordProperty("seed", std::to_string(seed));
    std::cout << "seed " << seed << '\n';
  }
  // Any order of magnitude is as likely as any other.
  Duration any_duration(int most_bits = 44) {
    return Duration(static_cast<int64_t>(random_() >> (64 - random_() % static_cast<uint64_t>(most_bits) - 1)));
  }
  void set_any() {
    NamedTimer& timer = timers[random_() % timers.size()];
    const Time deadline = random_() % 8 == 0 ? now - any_duration(30) : now + any_duration();
    wheel.set(timer, deadline);
    // What has passed stands for the next tick after the time that the wheel was told last.
    model_[timer.name] = {.deadline = deadline, .late_from = std::max(deadline, told_ + nanoseconds(1)) + kTick};
  }
  void cancel_any() {
    NamedTimer& timer = timers[random_() % timers.size()];
    if (random_() % 2 == 0) {
      wheel.cancel(timer);
    } else {
      wheel.set(timer, kNever);
    }
    model_.erase(timer.name);
  }
  void expire_some(size_t limit) {
    told_ = now;
    const std::vector<size_t> fired = expire(limit);
    ASSERT_LE(fired.size(), limit);
    for (const size_t timer : fired) {
      ASSERT_TRUE(model_.count(timer)) << "not set";
      ASSERT_LE(model_[timer].deadline, now) << "early";
      model_.erase(timer);
    }
    if (limit < kAll) return;
    for (const auto& [timer, set] : model_) ASSERT_GT(set.late_from, now) << "late";
  }
  Time first_late() const {
    Time first = kNever;
    for (const auto& [timer, set] : model_) first = std::min(first, set.late_from);
    return first;
  }

  struct Set {
    Time deadline, late_from;
  };
  std::mt19937_64 random_;
  std::map<size_t, Set> model_;
  Time told_ = now;
};

TEST_F(TimerWheelModel, FiresWhatASortedListWould) {
  for (int step = 0; step < 20'000 && !HasFatalFailure(); ++step) {
    switch (random_() % 8) {
      case 0:
        cancel_any();
        break;
      case 1:
        now += any_duration(random_() % 16 == 0 ? 44 : 24);
        break;
      case 2:
        if (wheel.next_deadline() != kNever) now = std::max(now, wheel.next_deadline());
        break;
      case 3:
        expire_some(random_() % 20);
        break;
      case 4:
        expire_some(kAll);
        break;
      default:
        set_any();
    }
    if (!model_.empty()) {
      ASSERT_LT(wheel.next_deadline(), first_late());
    }
  }
  for (NamedTimer& timer : timers) wheel.cancel(timer);
  EXPECT_EQ(wheel.next_deadline(), kNever);
}

}  // namespace
}  // namespace uroce::engine

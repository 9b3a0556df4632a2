// SPDX-License-Identifier: BSD-2-Clause
// Control by round-trip times, at a link that several senders share: how much of it is used, how fairly, what noise,
// other routes and pauses do.
#include "engine/congestion/delay_control.h"

#include <gtest/gtest.h>
#include <random>

#include "tests/engine/congestion/bottleneck.h"

namespace uroce::congestion::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Duration kBase = microseconds(20);

// `count` senders with almost the same base that begin within some microseconds of each other.
void add(Bottleneck& link, int count) {
  std::mt19937 random(7);
  for (int i = 0; i < count; ++i) {
    link.add(kBase + nanoseconds(random() % 3000));
    link.run(nanoseconds(random() % 20'000));
  }
}
uint64_t lost(const Bottleneck& link) {
  uint64_t sum = 0;
  for (const auto& sender : link.senders) sum += sender->lost;
  return sum;
}

// --- incast ----------------------------------------------------------------------------------------------------------

struct Share {
  Algorithm algorithm;
  int senders;
  uint32_t queue;
};
class Incast : public testing::TestWithParam<Share> {};

// Settled after 20 ms, whether the queue is deep or shallow. Without control nine of ten packets are lost where there
// are many senders, and some get nothing (see NoControl).
TEST_P(Incast, LinkIsSharedFairly) {
  Bottleneck link({.queue = GetParam().queue, .algorithm = GetParam().algorithm});
  add(link, GetParam().senders);
  link.run(milliseconds(20));
  link.forget_counts();
  link.run(milliseconds(30));
  EXPECT_GE(link.used(milliseconds(30)), 0.9);
  EXPECT_GE(link.jain(), 0.98);
  EXPECT_LE(lost(link), link.delivered() / 12);
  for (const auto& sender : link.senders) {
    EXPECT_GT(sender->delivered * link.senders.size(), link.delivered() / 2) << "starves";
  }
}

INSTANTIATE_TEST_SUITE_P(Shallow, Incast,
                         testing::Values(Share{Algorithm::kDelay, 2, 128}, Share{Algorithm::kDelay, 16, 128},
                                         Share{Algorithm::kDelay, 16, 256}, Share{Algorithm::kDelay, 64, 128},
                                         Share{Algorithm::kDelay, 64, 256}, Share{Algorithm::kDelay, 64, 1024}));
INSTANTIATE_TEST_SUITE_P(Deep, Incast,
                         testing::Values(Share{Algorithm::kDelay, 1, 1024}, Share{Algorithm::kDelay, 2, 1024},
                                         Share{Algorithm::kDelay, 16, 1024}, Share{Algorithm::kDelay, 64, 256},
                                         Share{Algorithm::kDelay, 64, 1024}));

TEST(IncastNoControl, SomeGetNothing) {
  Bottleneck link({.queue = 256, .algorithm = Algorithm::kOff});
  add(link, 64);
  link.run(milliseconds(5));
  EXPECT_LT(link.jain(), 0.3);
  EXPECT_GT(lost(link), 9 * link.delivered());
}

// Switches that mark: DCQCN and delay control together.
TEST(IncastWithMarks, LinkIsSharedFairly) {
  Bottleneck link({.queue = 1024, .mark_from = 64, .algorithm = Algorithm::kDelay});
  add(link, 64);
  link.run(milliseconds(40));
  link.forget_counts();
  link.run(milliseconds(40));
  EXPECT_GE(link.used(milliseconds(40)), 0.9);
  EXPECT_GE(link.jain(), 0.95);
}

// Others leave: the rest takes what they leave, and in the end is not paced any more.
TEST(Incast, EndsWithTheCongestion) {
  Bottleneck link({.queue = 256, .algorithm = Algorithm::kDelay});
  add(link, 16);
  link.run(milliseconds(50));
  for (size_t i = 1; i < link.senders.size(); ++i) link.senders[i]->active = false;
  link.run(milliseconds(30));
  link.forget_counts();
  link.run(milliseconds(20));
  EXPECT_GE(link.used(milliseconds(20)), 0.9);
}

TEST(Incast, ALatecomerGetsItsShare) {
  Bottleneck link({.queue = 256, .algorithm = Algorithm::kDelay});
  add(link, 15);
  link.run(milliseconds(50));
  Bottleneck::Sender& late = link.add(kBase);
  link.run(milliseconds(50));
  link.forget_counts();
  link.run(milliseconds(50));
  EXPECT_GE(late.delivered * 16, link.delivered() / 2);
}

// --- alone -----------------------------------------------------------------------------------------------------------

// What a thread that is not scheduled does to acknowledgements.
std::function<Duration()> heavy_tailed() {
  return [random = std::mt19937(3)]() mutable -> Duration {
    return random() % 20 == 0 ? microseconds(random() % 2000) : microseconds(random() % 30);
  };
}

// By default a sender alone is never paced, however long its own window makes the queue and whatever its peer does.
TEST(Alone, NeverPacedByDefault) {
  for (const Rate speed : {Rate::mbit(100), Rate::gbit(10)}) {
    Bottleneck link({.link = speed, .queue = 1024, .noise = heavy_tailed()});
    Bottleneck::Sender& sender = link.add(kBase);
    link.run(milliseconds(30));
    EXPECT_EQ(sender.control.rate(link.now), Rate::unlimited());
    EXPECT_EQ(sender.cuts, 0u);
    EXPECT_EQ(sender.control.window(Bottleneck::kPacket), std::nullopt);
  }
}

// Delays of some packets are not taken for a queue: with control on, as much arrives as without any.
TEST(Alone, NoiseDoesNotThrottle) {
  const auto arrived = [](Algorithm algorithm) {
    Bottleneck link({.queue = 1024, .algorithm = algorithm, .noise = heavy_tailed()});
    link.add(kBase);
    link.run(milliseconds(50));
    return link.delivered();
  };
  EXPECT_GE(arrived(Algorithm::kDelay) * 10, arrived(Algorithm::kOff) * 9);
}

// A route of 1 ms, or a peer that always takes so long: cuts show that it is no queue.
TEST(Alone, ALongerRouteIsLearnt) {
  Bottleneck link({.queue = 1024, .algorithm = Algorithm::kDelay});
  Bottleneck::Sender& sender = link.add(kBase);
  link.run(milliseconds(10));
  sender.base = milliseconds(1);
  link.run(milliseconds(300));
  link.forget_counts();
  link.run(milliseconds(100));
  const double most = 128.0 / 1.1e-3 * 0.1;  // a window per round trip
  EXPECT_GT(static_cast<double>(sender.delivered), 0.8 * most);
}

TEST(Alone, APauseForgetsTheLimit) {
  Bottleneck link({.queue = 256, .algorithm = Algorithm::kDelay});
  add(link, 16);
  link.run(milliseconds(50));
  for (auto& sender : link.senders) sender->active = false;
  link.run(milliseconds(500));
  Bottleneck::Sender& sender = *link.senders[0];
  EXPECT_NE(sender.control.rate(link.now), Rate::unlimited());
  link.start(sender);
  link.run(microseconds(60));  // too short for its own window to be a queue
  EXPECT_EQ(sender.control.rate(link.now), Rate::unlimited());
}

// --- what it is told -------------------------------------------------------------------------------------------------

TEST(DelayControl, WithoutAnyAnswerTheRateHalvesToAFloor) {
  DelayControl control;
  Time now{milliseconds(5)};
  control.start(Rate::gbit(10), now);
  for (int i = 0; i < 100; ++i) control.on_lost(now += milliseconds(1));
  EXPECT_EQ(control.rate(), DelayControl::kMinRate);
}

// Many losses in a short time are one.
TEST(DelayControl, LossesOfOneRoundCountOnce) {
  DelayControl control;
  Time now{milliseconds(5)};
  control.start(Rate::gbit(10), now);
  int cuts = 0;
  for (int i = 0; i < 1000; ++i) cuts += control.on_lost(now += microseconds(1));
  EXPECT_EQ(cuts, 1);
}

// Where everything is sent twice no round trip is known. What arrives says all the same that there is no standstill.
TEST(DelayControl, ArrivalsWithoutRoundTripTimesEndAStandstill) {
  DelayControl control;
  Time now{milliseconds(5)};
  control.start(DelayControl::kMinRate, now);
  for (int i = 0; i < 200; ++i) {
    control.on_acknowledged(100'000, Duration{}, now += microseconds(500));
    EXPECT_FALSE(control.on_lost(now += microseconds(600))) << "halved beside arrivals";
  }
  EXPECT_GT(control.rate(), Rate::mbit(500));
}

// Extremes neither overflow nor leave the range.
TEST(DelayControl, AnyNumbers) {
  std::mt19937_64 random(1);
  DelayControl control;
  Time now{milliseconds(5)};
  for (int i = 0; i < 200'000; ++i) {
    if (random() % 100 == 0) control.start(Rate::bits(random()), now);
    if (random() % 10 == 0) control.on_lost(now);
    now += Duration(random() % (uint64_t{1} << random() % 40));
    control.on_acknowledged(random() >> random() % 64, Duration(random() % (uint64_t{1} << random() % 50)), now);
    if (!control.controlled()) continue;
    ASSERT_GE(control.rate(), DelayControl::kMinRate);
    ASSERT_LE(control.rate(), Rate::gbit(1'000'000));
  }
}

}  // namespace
}  // namespace uroce::congestion::test

// SPDX-License-Identifier: BSD-2-Clause
// Properties of the reaction point under random events; seeds are in the failure messages.
#include <gtest/gtest.h>
#include <random>

#include "engine/congestion/dcqcn.h"

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

class DcqcnRandomTest : public testing::TestWithParam<uint32_t> {
 protected:
  uint64_t below(uint64_t limit) { return random_() % limit; }

  // Mostly nanoseconds to microseconds, sometimes up to a few stages, rarely up to a second.
  Duration any_time() {
    constexpr int64_t kScales[] = {1'000, 5'000, 20'000, 1'000'000, 1'000'000'000};
    return nanoseconds(below(static_cast<uint64_t>(kScales[below(below(8) == 0 ? 5 : 4)])));
  }
  Rate any_cap() { return Rate::bits(1'000'000 + below(uint64_t{1} << (20 + below(20)))); }

  std::mt19937_64 random_{GetParam()};
};

TEST_P(DcqcnRandomTest, RateStaysBetweenFloorAndCap) {
  SCOPED_TRACE(GetParam());
  Dcqcn qp;
  Rate cap;
  Time now{};
  for (int i = 0; i < 50'000; ++i) {
    now += any_time();
    if (below(3) == 0) {
      const Rate start = any_cap();
      if (qp.rate(now) == Rate::unlimited()) cap = start;
      qp.on_cnp(start, now);
    } else {
      qp.on_sent(static_cast<uint32_t>(below(3'000'000)), now);
    }
    if (!qp.controlled()) continue;
    ASSERT_GE(qp.rate(), Rate::mbit(1)) << i;
    ASSERT_LE(qp.rate(), cap) << i;
    ASSERT_GT(qp.next_rise(), now) << i;
  }
}

// Without CNPs the rate never falls, and the end comes within the bound: a step of 5 Mb/s per stage from the floor to
// the cap, one stage for each halving of 2^40, and one in which the target does not rise.
TEST_P(DcqcnRandomTest, RecoveryIsMonotonicAndBounded) {
  SCOPED_TRACE(GetParam());
  Dcqcn qp;
  Time now{};
  for (int episode = 0; episode < 20; ++episode) {
    const Rate cap = any_cap();
    const uint64_t cnps = 1 + below(1000);
    for (uint64_t i = 0; i < cnps; ++i) qp.on_cnp(cap, now += any_time());
    const uint64_t stages = cap.bits_per_second() / 5'000'000 + 42;
    const Time bound = now + microseconds(4) + static_cast<int64_t>(stages) * microseconds(300);
    now += microseconds(4);  // a CNP that waits still cuts
    Rate before = qp.rate(now);
    while (qp.rate(now) != Rate::unlimited()) {
      ASSERT_LE(now, bound);
      ASSERT_GE(qp.rate(now), before);
      before = qp.rate(now);
      if (below(2) == 0) qp.on_sent(static_cast<uint32_t>(below(1'000'000)), now);
      now += microseconds(1 + below(2000));
    }
  }
}

// Catching up late gives what looking all the time gives, the end of control included.
TEST_P(DcqcnRandomTest, LazyIsEager) {
  SCOPED_TRACE(GetParam());
  Dcqcn lazy;
  Dcqcn eager;
  Time now{};
  for (int i = 0; i < 3'000; ++i) {
    // Long pauses, so that rate and target come to their equilibrium; caps with and without a multiple of the step.
    const Time next = now + (below(20) == 0 ? milliseconds(below(300)) : any_time());
    while (eager.controlled() && now < next) eager.rate(now = std::min(next, now + microseconds(20 + below(40))));
    now = next;
    if (below(4) != 0) {
      const Rate start = below(2) == 0 ? any_cap() : Rate::mbit(5 * (1 + below(500)));
      lazy.on_cnp(start, now);
      eager.on_cnp(start, now);
    } else {
      const auto bytes = static_cast<uint32_t>(below(3'000'000));
      lazy.on_sent(bytes, now);
      eager.on_sent(bytes, now);
    }
    ASSERT_EQ(lazy.rate(now), eager.rate(now)) << i;
    ASSERT_EQ(lazy.next_rise(), eager.next_rise()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DcqcnRandomTest, testing::Range(1u, 9u));

}  // namespace
}  // namespace uroce::congestion

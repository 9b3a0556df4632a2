// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run_support.h"

#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RunSupportTest : public testing::Test {
 protected:
  static wire::IpAddress destination(size_t n) { return ipv4(192, 0, 2, static_cast<uint8_t>(n)); }
  // A run is refused, and its packets are not.
  void refuse(const wire::IpAddress& to, int error = EIO) {
    support_.doubt(to, error);
    EXPECT_FALSE(support_.allowed(to));
    support_.on_alone(to, true);
  }

  static inline RunSupport::Clock::time_point now;
  Notices notices_;
  RunSupport support_{notices_, [] { return now; }};
  const wire::IpAddress a_ = destination(1), b_ = destination(2);
};

TEST_F(RunSupportTest, RefusedRunsAreTriedAgainAfterATimeThatDoubles) {
  for (const int error : {EIO, EINVAL}) {
    RunSupport support(notices_, [] { return now; });
    EXPECT_TRUE(support.allowed(a_));
    RunSupport::Clock::duration pause = RunSupport::kFirstPause;
    for (uint64_t refusals = 1; refusals < 10; ++refusals) {
      support.doubt(a_, error);
      EXPECT_FALSE(support.allowed(a_));
      support.on_alone(a_, true);
      EXPECT_EQ(support.refusals(), refusals);
      now += pause - std::chrono::nanoseconds(1);
      EXPECT_FALSE(support.allowed(a_)) << refusals;
      now += std::chrono::nanoseconds(1);
      EXPECT_TRUE(support.allowed(a_)) << refusals;
      pause = std::min(2 * pause, RunSupport::kLongestPause);
    }
    support.on_run_sent(a_);
    support.doubt(a_, error);
    support.on_alone(a_, true);
    now += RunSupport::kFirstPause;
    EXPECT_TRUE(support.allowed(a_));
  }
}

TEST_F(RunSupportTest, WhatIsRefusedAloneTooSaysNothingOfRuns) {
  support_.doubt(a_, EINVAL);
  support_.on_alone(b_, true);
  EXPECT_FALSE(support_.allowed(a_)) << "of another destination";
  support_.on_alone(a_, false);
  EXPECT_TRUE(support_.allowed(a_));
  EXPECT_EQ(support_.refusals(), 0u);
  EXPECT_THAT(notices_.take(), IsEmpty());
}

TEST_F(RunSupportTest, ARoutePausesItsDestinationAndTheOptionAll) {
  refuse(a_, EIO);
  EXPECT_FALSE(support_.allowed(a_));
  EXPECT_TRUE(support_.allowed(b_));
  support_.on_run_sent(b_);
  EXPECT_FALSE(support_.allowed(a_));
  refuse(b_, EINVAL);
  EXPECT_FALSE(support_.allowed(destination(3)));
  now += RunSupport::kFirstPause;
  support_.on_run_sent(destination(3));
  EXPECT_TRUE(support_.allowed(a_) && support_.allowed(b_));
}

TEST_F(RunSupportTest, MoreDestinationsThanItRemembersPauseAll) {
  for (size_t i = 0; i < RunSupport::kDestinations; ++i) refuse(destination(10 + i));
  EXPECT_TRUE(support_.allowed(a_));
  refuse(b_);
  EXPECT_FALSE(support_.allowed(a_)) << "one more";
  EXPECT_FALSE(support_.allowed(b_));
  now += RunSupport::kFirstPause;
  refuse(b_);
  EXPECT_TRUE(support_.allowed(a_)) << "a pause that is over leaves its place";
  EXPECT_FALSE(support_.allowed(b_));
}

TEST_F(RunSupportTest, SaysSoOnceUntilARunLeavesAgain) {
  for (int i = 0; i < 5; ++i) {
    refuse(a_);
    now += RunSupport::kLongestPause;
  }
  EXPECT_THAT(notices_.take(), ElementsAre(HasSubstr("no runs of packets to 192.0.2.1 (Input/output error)")));
  refuse(b_, EINVAL);
  EXPECT_THAT(notices_.take(), ElementsAre(HasSubstr("no runs of packets (Invalid argument)")));
  now += RunSupport::kLongestPause;
  refuse(a_);
  refuse(b_, EINVAL);
  EXPECT_THAT(notices_.take(), IsEmpty());
  now += RunSupport::kLongestPause;
  support_.on_run_sent(a_);
  refuse(a_);
  refuse(b_, EINVAL);
  EXPECT_THAT(notices_.take(), ElementsAre(HasSubstr("192.0.2.1"), HasSubstr("Invalid argument")));
}

}  // namespace
}  // namespace uroce::io::test

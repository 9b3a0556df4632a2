// SPDX-License-Identifier: BSD-2-Clause
// Descriptors that take no place of the application's.
#include "base/set_aside.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace uroce {
namespace {

class SetAsideTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual_), 0);
    if (usual_.rlim_max <= kSoft) GTEST_SKIP() << "the hard limit of open files is " << usual_.rlim_max;
  }
  void TearDown() override { setrlimit(RLIMIT_NOFILE, &usual_); }
  static void limit(rlim_t soft, rlim_t hard) {
    const rlimit now{soft, hard};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  static rlim_t soft_limit() {
    rlimit now{};
    return getrlimit(RLIMIT_NOFILE, &now) == 0 ? now.rlim_cur : 0;
  }
  static UniqueFd event() { return UniqueFd(eventfd(3, EFD_CLOEXEC | EFD_NONBLOCK)); }

  static constexpr rlim_t kSoft = 200;
  rlimit usual_{};
};

TEST_F(SetAsideTest, TakesNoPlaceBelowTheSoftLimit) {
  limit(kSoft, usual_.rlim_max);
  const int lowest = event().get();
  const UniqueFd one = set_aside(event()), two = set_aside(event());
  EXPECT_GE(one.get(), static_cast<int>(kSoft));
  EXPECT_GT(two.get(), one.get());
  EXPECT_EQ(event().get(), lowest) << "its first place is free again";
  EXPECT_EQ(soft_limit(), kSoft);
  EXPECT_EQ(fcntl(one.get(), F_GETFD), FD_CLOEXEC);
  eventfd_t count = 0;
  EXPECT_EQ(eventfd_read(one.get(), &count), 0);
  EXPECT_EQ(count, 3u);
}

TEST_F(SetAsideTest, StaysWhereNobodyMissesAPlace) {
  limit(kSoft, usual_.rlim_max);
  const int lowest = event().get();
  EXPECT_EQ(set_aside(event(), kSoft).get(), lowest);
}

TEST_F(SetAsideTest, StaysWhereThereIsNoRoom) {
  const pid_t child = fork();  // the hard limit does not come back
  if (child == 0) {
    const rlimit both{kSoft, kSoft};
    const bool set = setrlimit(RLIMIT_NOFILE, &both) == 0;
    const int lowest = event().get();
    const bool stays = set_aside(event()).get() == lowest;
    _exit(set && stays && soft_limit() == kSoft ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(SetAsideTest, NothingStaysNothing) {
  EXPECT_FALSE(set_aside(UniqueFd()));
}

}  // namespace
}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// Tests that change the network for all: each runs as a process of its own, which gets a network namespace of its own
// (network_namespace.cc).
#pragma once

#include <climits>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/run_tests.h"

// A shell command, without the preload: it is none of the test's.
inline void run(const std::string& command) {
  ASSERT_EQ(system(("export LD_PRELOAD=; " + command).c_str()), 0) << command;
}

// The first line of such a test: if (!alone()) return;
// Starts the program once more with nothing but this test, and `environment` in front of the command; that process gets
// true and goes on. A filter that matched nothing would fail (tests/run_tests.h); what is skipped there is skipped
// here.
[[nodiscard]] inline bool alone(const std::string& environment = "") {
  if (getenv("UROCE_TEST_ALONE") != nullptr) return true;
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  char path[PATH_MAX + 1] = {};
  EXPECT_GT(readlink("/proc/self/exe", path, PATH_MAX), 0);
  const std::string command = environment + " UROCE_TEST_ALONE=1 " + path +
                              " --gtest_brief=1 --gtest_filter=" + test.test_suite_name() + "." + test.name();
  const int status = system(("env -u UROCE_TEST_SKIPS " + command).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == uroce::test::kSkipped) {
    [] { GTEST_SKIP() << "skipped in the process of its own, see above"; }();
  } else {
    EXPECT_EQ(status, 0) << command;
  }
  return false;
}

// For alone(): all netdevs become devices, not rdma0 alone.
inline constexpr const char* kAllNetdevs = "-u UROCE_NETDEV UROCE_TEST_ALL_NETDEVS=1";

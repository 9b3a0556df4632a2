// Tests that change the network for all: each runs as a process of its own, which gets a network namespace of its own
// (network_namespace.cc). The test itself is a disabled one, started by one that is not.
#pragma once

#include <climits>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

// A shell command, without the preload: it is none of the test's.
inline void run(const std::string& command) {
  ASSERT_EQ(system(("export LD_PRELOAD=; " + command).c_str()), 0) << command;
}

inline void run_alone(const std::string& test, const std::string& environment = "") {
  char path[PATH_MAX + 1] = {};
  ASSERT_GT(readlink("/proc/self/exe", path, PATH_MAX), 0);
  const std::string command =
      environment + " " + path + " --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter=" + test;
  EXPECT_EQ(system(command.c_str()), 0) << command;
}

// In the environment of run_alone(): all netdevs become devices, not rdma0 alone.
inline constexpr const char* kAllNetdevs = "env -u UROCE_NETDEV UROCE_TEST_ALL_NETDEVS=1";

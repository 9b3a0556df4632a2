// SPDX-License-Identifier: BSD-2-Clause
// Linked into the GoogleTest binaries of the simulator: a test that fails leaves what its hosts saw as a capture, and
// says how to repeat it.
#include <cstdio>
#include <gtest/gtest.h>
#include <string>

#include "tests/simulator/network.h"

namespace uroce::simulator {
namespace {

void keep_capture(const Network& network) {
  if (!testing::Test::HasFailure()) return;
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  std::string path = "simulator-" + name + ".pcapng";
  for (char& c : path) c = c == '/' ? '-' : c;
  const bool written = network.judge.write_capture(path);
  std::printf("seed %llu; %s %s; repeat with --gtest_filter=%s\n", static_cast<unsigned long long>(network.seed),
              written ? "capture in" : "cannot write", path.c_str(), name.c_str());
}

const bool kInstalled = [] {
  Network::at_end = keep_capture;
  return true;
}();

}  // namespace
}  // namespace uroce::simulator

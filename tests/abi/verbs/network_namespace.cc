// SPDX-License-Identifier: BSD-2-Clause
// main() of verbs_client_test: gives the process a network namespace before anything looks at the network, and says in
// the environment which test runs (call_trace.cc).
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "tests/abi/verbs/own_network.h"
#include "tests/run_tests.h"

namespace {

struct TestName final : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    setenv("UROCE_TRACE_TEST", (std::string(test.test_suite_name()) + "." + test.name()).c_str(), 1);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!enter_own_network()) {
    return uroce::test::skip_all("this needs the right to make a network namespace");
  }
  if (getenv("UROCE_TEST_ALL_NETDEVS") == nullptr) setenv("UROCE_NETDEV", "rdma0", 1);
  testing::UnitTest::GetInstance()->listeners().Append(new TestName);
  return uroce::test::run_tests();
}

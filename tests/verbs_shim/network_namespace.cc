// main() of verbs_client_test: gives the process a network namespace before anything looks at the network.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/verbs_shim/own_network.h"

namespace {

constexpr int kSkipped = 77;

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!enter_own_network()) {
    std::fputs("skipped: this needs the right to make a network namespace\n", stderr);
    return kSkipped;
  }
  if (getenv("UROCE_TEST_ALL_NETDEVS") == nullptr) setenv("UROCE_NETDEV", "rdma0", 1);
  return RUN_ALL_TESTS();
}

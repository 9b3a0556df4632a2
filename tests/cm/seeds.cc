// SPDX-License-Identifier: BSD-2-Clause
// Random applications of the connection manager by the thousand: cm_seeds [--seeds N] [--first SEED|fresh]
// Exit code 0 if all passed. The first failure prints the command that repeats it.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "tests/cm/scenario.h"

using namespace uroce::cm::test;

int main(int argc, char** argv) {
  uint64_t first = 1, seeds = 1000;
  for (int i = 1; i < argc; i += 2) {
    const bool is_first = std::strcmp(argv[i], "--first") == 0;
    if (i + 1 == argc || (!is_first && std::strcmp(argv[i], "--seeds") != 0)) {
      return std::puts("usage: cm_seeds [--seeds N] [--first SEED|fresh]"), 2;
    }
    const bool fresh = std::strcmp(argv[i + 1], "fresh") == 0;
    (is_first ? first : seeds) = fresh ? std::random_device()() : std::strtoull(argv[i + 1], nullptr, 0);
  }
  Outcome all;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Outcome one = run_scenario(seed);
    // What the hosts expect (lab.cc), outside of any test.
    if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) one.error += " (an expectation of the hosts)";
    if (!one.error.empty()) {
      std::printf("seed %" PRIu64 ": %s\nrepeat: %s --first %" PRIu64 " --seeds 1\n", seed, one.error.c_str(), argv[0],
                  seed);
      return 1;
    }
    all.connects += one.connects;
    all.established += one.established;
    all.datagrams += one.datagrams;
    all.crashes += one.crashes;
    all.one_sided += one.one_sided;
  }
  std::printf("seeds %" PRIu64 "..%" PRIu64 " passed: %" PRIu64 " attempts to connect, %" PRIu64
              " established, %" PRIu64 " datagrams, %" PRIu64
              " crashes; established at one side only, and ended: %" PRIu64 "\n",
              first, first + seeds - 1, all.connects, all.established, all.datagrams, all.crashes, all.one_sided);
  return 0;
}

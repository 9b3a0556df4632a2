// Random applications by the hundred (scenario.h). UROCE_TEST_SEED decides where the seeds begin and is printed with
// what failed; cm_seeds runs more of them.
#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/cm/scenario.h"

namespace uroce::cm::test {
namespace {

constexpr uint64_t kSeeds = 2000;

TEST(RandomApplications, AgreeInTheEndAndLeaveNothing) {
  const char* const text = std::getenv("UROCE_TEST_SEED");
  const uint64_t first = text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
  Outcome all;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    const Outcome outcome = run_scenario(seed);
    ASSERT_EQ(outcome.error, "") << "repeat: cm_seeds --first " << seed << " --seeds 1";
    all.established += outcome.established;
    all.crashes += outcome.crashes;
  }
  EXPECT_GT(all.established, kSeeds);
  EXPECT_GT(all.crashes, 100U);
}

}  // namespace
}  // namespace uroce::cm::test

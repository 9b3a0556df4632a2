// SPDX-License-Identifier: BSD-2-Clause
// Random work of all kinds in both directions between two RC QPs over links that lose, duplicate, reorder and corrupt:
// every byte arrives, every completion comes exactly once and in order, and the oracle finds nothing. UROCE_TEST_SEED
// decides everything and is printed with what failed.
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "tests/simulator/scenario.h"

namespace uroce::simulator {

void PrintTo(const Scenario& s, std::ostream* out) {
  *out << s.name;
}

namespace {

uint64_t base_seed() {
  const char* text = std::getenv("UROCE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
}

LinkConfig faulty(double drop, double duplicate, double reorder, double corrupt) {
  LinkConfig link;
  link.drop = drop;
  link.duplicate = duplicate;
  link.reorder = reorder;
  link.corrupt = corrupt;
  return link;
}

Scenario scenario(const char* name, const LinkConfig& link, uint32_t path_mtu = 1024, uint32_t first_psn = 0x123456,
                  int messages = 400, uint32_t max_size = 40000) {
  Scenario s;
  s.name = name;
  s.link = link;
  s.attributes.path_mtu = path_mtu;
  s.first_psn = first_psn;
  s.traffic.messages = messages;
  s.traffic.max_size = max_size;
  return s;
}

const Scenario kScenarios[] = {
    scenario("clean", {}),
    scenario("loss_1", faulty(0.01, 0, 0, 0)),
    scenario("duplicates_5", faulty(0, 0.05, 0, 0)),
    scenario("reorder_5", faulty(0, 0, 0.05, 0)),
    scenario("issue_mix", faulty(0.01, 0.005, 0.01, 0.001)),
    scenario("loss_10_all", faulty(0.1, 0.02, 0.05, 0.01), 1024, 0x123456, 150, 20000),
    scenario("mtu_256_wrap", faulty(0.01, 0.005, 0.01, 0.001), 256, 0xffff00, 300, 40000),
    scenario("mtu_4096_half", faulty(0.01, 0.005, 0.01, 0.001), 4096, 0x7fff80, 300, 100000),
};

class RandomTraffic : public testing::TestWithParam<std::tuple<Scenario, int>> {};

TEST_P(RandomTraffic, EveryByteAndEveryCompletionExactlyOnce) {
  const Scenario& s = std::get<0>(GetParam());
  const uint64_t seed = base_seed() * 1000 + static_cast<uint64_t>(std::get<1>(GetParam()));
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const Outcome outcome = run(s, seed, "simulator-" + s.name + "-" + std::to_string(seed) + ".pcapng");
  EXPECT_EQ(outcome.error, "") << "repeat: UROCE_TEST_SEED=" << base_seed()
                               << " simulator_random_traffic_test --gtest_filter=" << test->test_suite_name() << "."
                               << test->name();
}

INSTANTIATE_TEST_SUITE_P(Grid, RandomTraffic, testing::Combine(testing::ValuesIn(kScenarios), testing::Range(0, 4)),
                         [](const auto& param_info) {
                           return std::get<0>(param_info.param).name + "_" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

}  // namespace
}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// Random applications by the hundred (scenario.h). UROCE_TEST_SEED decides where the seeds begin and is printed with
// what failed; cm_seeds runs more of them.
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

#include "tests/cm/lab.h"
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

// A tenth of all datagrams is lost, as many come twice or late, and each of 500 connections is made and ended.
TEST(LossOfOneInTen, AllConnectAndAllDisconnect) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Lab lab(seed);
    lab.faults = {.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .reorder_delay = 500ms};
    Host a(lab, v4(1)), b(lab, v4(2));
    b.listen(kPort, kAlice, 1024);
    for (int i = 0; i < 100; ++i) a.connect(b, kPort);
    // What both do whenever they are told something; `seen` counts by kind.
    std::map<EventKind, int> seen;
    const auto answer = [&](Host& host) {
      for (; !host.events.empty(); host.events.pop_front()) {
        const Event event = host.events.front();
        ++seen[event.kind];
        if (event.kind == EventKind::kConnectRequest) host.accept(event.id);
        if (event.kind == EventKind::kConnectResponse) host.confirm(event.id);
        if (event.kind == EventKind::kEstablished) host.disconnect(event.id);
        if (event.kind == EventKind::kDisconnected) host.disconnect(event.id), host.destroy(event.id);
      }
    };
    for (int i = 0; i < 20000; ++i) {
      lab.run_for(10ms);
      answer(a);
      answer(b);
    }
    EXPECT_EQ(seen[EventKind::kConnectRequest], 100) << seed;
    EXPECT_EQ(seen[EventKind::kConnectResponse], 100) << seed;
    EXPECT_EQ(seen[EventKind::kEstablished], 100) << seed;
    EXPECT_EQ(seen[EventKind::kDisconnected], 200) << seed;
    EXPECT_EQ(seen.size(), 4U) << "nothing else";
    EXPECT_EQ(a.cm.size(), 0U);
    EXPECT_EQ(b.cm.size(), 1U);
  }
}

}  // namespace
}  // namespace uroce::cm::test

// SPDX-License-Identifier: BSD-2-Clause
#include "base/spare_cpu.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace uroce {
namespace {

TEST(SpareCpu, ReadsWhatProcTells) {
  EXPECT_EQ(runnable_threads("0.58 1.46 1.77 1/88 14840\n"), 1u);
  EXPECT_EQ(runnable_threads("112.00 90.46 71.77 137/2088 4194303\n"), 137u);
  for (const char* text :
       {"", "/", "0.58 1.46", "0.1 0.1 0.1 x/88 1", "0.1 0.1 0.1 -1/88 1", "0.1 0.1 0.1 99999999999/1 1"})
    EXPECT_EQ(runnable_threads(text), std::nullopt) << text;
}

TEST(SpareCpu, ReadsQuotas) {
  EXPECT_FALSE(is_limited("max 100000\n"));
  EXPECT_FALSE(is_limited("")) << "the root cgroup has no such file";
  EXPECT_TRUE(is_limited("50000 100000\n"));
}

// More threads than CPUs that the process may use.
TEST(SpareCpu, ThereIsNoneWhereOthersWantToRun) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::atomic<bool> ends{false};
  std::vector<std::thread> others;
  for (int i = 0; i < CPU_COUNT(&allowed) + 1; ++i)
    others.emplace_back([&ends] {
      while (!ends) continue;
    });
  // Whatever was found before is forgotten after some looks; what is wrong now would be found by then as well.
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
    if (i >= 20) {
      EXPECT_FALSE(has_spare_cpu(monotonic_now())) << i;
    } else {
      has_spare_cpu(monotonic_now());
    }
  }
  ends = true;
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace uroce

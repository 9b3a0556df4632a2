// SPDX-License-Identifier: BSD-2-Clause
#include "cli/progress_line.h"

#include <gtest/gtest.h>
#include <string>

namespace uroce::cli {
namespace {

using std::chrono::milliseconds;

std::string drawn(uint64_t total, bool shown, std::initializer_list<std::pair<int, uint64_t>> updates) {
  testing::internal::CaptureStderr();
  {
    const ProgressLine::Clock::time_point begun{};
    ProgressLine line("reading", total, shown, begun);
    for (const auto& [time_ms, done] : updates) line.update(done, begun + milliseconds(time_ms));
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressLine, NothingForWhatIsDoneSoon) {
  EXPECT_EQ(drawn(100, true, {{0, 10}, {1999, 99}}), "");
}

TEST(ProgressLine, DrawnOverItselfAndRemoved) {
  EXPECT_EQ(drawn(100, true, {{2000, 50}, {2100, 55}, {2200, 60}}),
            "\rreading  50 %\033[K\rreading  60 %\033[K\r\033[K");
}

TEST(ProgressLine, NotWhereItIsNoTerminalOrTheTotalIsNotKnown) {
  EXPECT_EQ(drawn(100, false, {{5000, 50}}), "");
  EXPECT_EQ(drawn(0, true, {{5000, 50}}), "");
}

TEST(ProgressLine, MoreThanAllIsAll) {
  EXPECT_EQ(drawn(100, true, {{2000, UINT64_MAX}}), "\rreading 100 %\033[K\r\033[K");
}

}  // namespace
}  // namespace uroce::cli

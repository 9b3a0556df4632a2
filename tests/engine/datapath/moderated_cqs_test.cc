// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/moderated_cqs.h"

#include <gtest/gtest.h>

namespace uroce::engine::test {
namespace {

struct Events final : queue::CompletionNotifier {
  void on_completion(queue::CompletionQueue&) override { ++count; }
  int count = 0;
};

TEST(ModeratedCqsTest, TheSoonestDeadlineCounts) {
  const auto at = [](int us) { return Time(std::chrono::microseconds(us)); };
  const auto push = [](queue::CompletionQueue& cq, int us) {
    cq.arm(queue::CompletionQueue::Arm::kAny);
    cq.push({.timestamp = static_cast<uint64_t>(us) * 1000});
  };
  ModeratedCqs moderated;
  Events slow_events, fast_events;
  queue::CompletionQueue slow(16, &slow_events), fast(16, &fast_events);
  moderated.moderate(slow, 8, std::chrono::microseconds(100));
  moderated.moderate(fast, 8, std::chrono::microseconds(10));
  EXPECT_EQ(moderated.next_deadline(), kNever);
  push(slow, 0);
  EXPECT_EQ(moderated.next_deadline(), at(100));
  push(fast, 50);
  EXPECT_EQ(moderated.next_deadline(), at(60));
  moderated.expire(at(59));
  EXPECT_EQ(fast_events.count, 0);
  moderated.expire(at(60));
  EXPECT_EQ(fast_events.count, 1);
  EXPECT_EQ(slow_events.count, 0);
  EXPECT_EQ(moderated.next_deadline(), at(100));
  moderated.expire(at(100));
  EXPECT_EQ(slow_events.count, 1);
  EXPECT_EQ(moderated.next_deadline(), kNever);
  moderated.moderate(fast, 0, {});
  push(fast, 200);
  EXPECT_EQ(fast_events.count, 2) << "at once";
  EXPECT_EQ(moderated.next_deadline(), kNever);
}

}  // namespace
}  // namespace uroce::engine::test

// SPDX-License-Identifier: BSD-2-Clause
// The completion queue: what ibv_resize_cq, ibv_modify_cq and IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN ask of it.
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "engine/queue/completion_queue.h"

namespace uroce::queue {
namespace {

using Arm = CompletionQueue::Arm;
using Ids = std::vector<uint64_t>;
using std::chrono::microseconds;

class CountingNotifier final : public CompletionNotifier {
 public:
  virtual ~CountingNotifier() = default;
  void on_completion(CompletionQueue&) override { ++count; }
  int count = 0;
};

Time at(int us) {
  return Time(microseconds(us));
}

Cqe cqe(uint64_t wr_id, Time when = {}) {
  Cqe c;
  c.wr_id = wr_id;
  c.timestamp = static_cast<uint64_t>(when.time_since_epoch().count());
  return c;
}

Ids take(CompletionQueue& cq, uint32_t limit = UINT32_MAX) {
  Ids ids;
  cq.poll(limit, [&](const Cqe& c) { ids.push_back(c.wr_id); });
  return ids;
}

bool resize(CompletionQueue& cq, uint32_t capacity) {
  CompletionQueue::Ring ring = CompletionQueue::make_ring(capacity);
  return cq.resize(capacity, ring);
}

// --- resize ----------------------------------------------------------------------------------------------------------

TEST(CompletionQueueResize, KeepsWhatIsInItWhereverTheRingStands) {
  for (uint32_t start = 0; start < 9; ++start) {
    for (const uint32_t capacity : {4u, 8u, 64u}) {
      CompletionQueue cq(8, nullptr);
      for (uint32_t i = 0; i < start; ++i) {
        cq.push(cqe(99));
        take(cq);
      }
      for (uint64_t id = 1; id <= 4; ++id) cq.push(cqe(id));
      ASSERT_TRUE(resize(cq, capacity));
      EXPECT_EQ(cq.capacity(), capacity);
      for (uint64_t id = 5; id <= capacity; ++id) ASSERT_TRUE(cq.push(cqe(id)));
      EXPECT_FALSE(cq.push(cqe(100))) << "full";
      Ids expected;
      for (uint64_t id = 1; id <= capacity; ++id) expected.push_back(id);
      EXPECT_EQ(take(cq), expected);
    }
  }
}

TEST(CompletionQueueResize, RefusesToBecomeSmallerThanItsContents) {
  CompletionQueue cq(8, nullptr);
  for (uint64_t id = 1; id <= 5; ++id) cq.push(cqe(id));
  EXPECT_FALSE(resize(cq, 4));
  EXPECT_EQ(cq.capacity(), 8u);
  EXPECT_TRUE(resize(cq, 5));
  EXPECT_EQ(take(cq), (Ids{1, 2, 3, 4, 5}));
  EXPECT_TRUE(resize(cq, 2));
  EXPECT_EQ(cq.capacity(), 2u);
}

TEST(CompletionQueueResize, LeavesTheArmAlone) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  cq.arm(Arm::kAny);
  ASSERT_TRUE(resize(cq, 16));
  EXPECT_TRUE(cq.armed());
  cq.push(cqe(1));
  EXPECT_EQ(notifier.count, 1);
}

// The producer resizes while a consumer polls: nothing is lost, doubled or out of order.
TEST(CompletionQueueResize, WhileAnotherThreadPolls) {
  constexpr uint64_t kMany = 100'000;
  CompletionQueue cq(64, nullptr);
  std::thread producer([&] {
    uint32_t capacity = 64;
    for (uint64_t id = 0; id < kMany;) {
      if (cq.push(cqe(id))) {
        ++id;
      } else {
        std::this_thread::yield();
      }
      if (id % 1000 == 0) {
        capacity = capacity == 64 ? 256 : 64;
        resize(cq, capacity);  // may refuse
      }
    }
  });
  uint64_t expected = 0;
  bool in_order = true;
  while (expected < kMany) {
    if (cq.poll(16, [&](const Cqe& c) { in_order &= c.wr_id == expected++; }) == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_TRUE(in_order);
}

// --- overrun that is ignored -----------------------------------------------------------------------------------------

TEST(CompletionQueueOverwrite, LosesTheOldest) {
  CompletionQueue cq(4, nullptr, CompletionQueue::Overrun::kOverwrite);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_TRUE(cq.push(cqe(id)));
  EXPECT_FALSE(cq.overrun());
  EXPECT_EQ(take(cq), (Ids{3, 4, 5, 6}));
  EXPECT_TRUE(cq.empty());
}

TEST(CompletionQueueOverwrite, WhileAnotherThreadPolls) {
  constexpr uint64_t kMany = 100'000;
  CompletionQueue cq(16, nullptr, CompletionQueue::Overrun::kOverwrite);
  std::thread producer([&] {
    for (uint64_t id = 1; id <= kMany; ++id) cq.push(cqe(id));
  });
  uint64_t last = 0;
  bool in_order = true;
  while (last < kMany) {
    cq.poll(4, [&](const Cqe& c) {
      in_order &= c.wr_id > last;
      last = c.wr_id;
    });
  }
  producer.join();
  EXPECT_TRUE(in_order);
}

// --- moderation ------------------------------------------------------------------------------------------------------

TEST(CompletionQueueModeration, NotifiesAtTheCount) {
  CountingNotifier notifier;
  CompletionQueue cq(16, &notifier);
  cq.moderate(3, microseconds(100));
  EXPECT_TRUE(cq.moderated());
  cq.arm(Arm::kAny);
  cq.push(cqe(1, at(10)));
  cq.push(cqe(2, at(11)));
  EXPECT_EQ(notifier.count, 0);
  EXPECT_TRUE(cq.armed());
  cq.push(cqe(3, at(12)));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_FALSE(cq.armed());
  EXPECT_EQ(cq.deadline(), kNever);
  for (uint64_t id = 4; id <= 8; ++id) cq.push(cqe(id, at(13)));
  EXPECT_EQ(notifier.count, 1) << "not armed";
}

TEST(CompletionQueueModeration, NotifiesThePeriodAfterTheFirst) {
  CountingNotifier notifier;
  CompletionQueue cq(16, &notifier);
  cq.moderate(10, microseconds(100));
  cq.arm(Arm::kAny);
  EXPECT_EQ(cq.deadline(), kNever);
  cq.push(cqe(1, at(50)));
  EXPECT_EQ(cq.deadline(), at(150));
  cq.push(cqe(2, at(120)));
  EXPECT_EQ(cq.deadline(), at(150)) << "the first one counts";
  cq.expire(at(149));
  EXPECT_EQ(notifier.count, 0);
  cq.expire(at(150));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_EQ(cq.deadline(), kNever);
  cq.expire(at(1000));
  EXPECT_EQ(notifier.count, 1);
}

TEST(CompletionQueueModeration, CountsWhatTheQueueIsArmedFor) {
  CountingNotifier notifier;
  CompletionQueue cq(16, &notifier);
  cq.moderate(2, microseconds(100));
  cq.arm(Arm::kSolicited);
  for (uint64_t id = 0; id < 4; ++id) cq.push(cqe(id, at(1)));
  EXPECT_EQ(notifier.count, 0);
  EXPECT_EQ(cq.deadline(), kNever);
  Cqe solicited = cqe(5, at(2));
  solicited.solicited = true;
  cq.push(solicited);
  EXPECT_EQ(cq.deadline(), at(102));
  Cqe failed = cqe(6, at(3));
  failed.status = WcStatus::kFlushError;
  cq.push(failed);
  EXPECT_EQ(notifier.count, 1);
}

TEST(CompletionQueueModeration, ZeroOfEitherSwitchesItOff) {
  for (const auto& [count, period] : std::vector<std::pair<uint16_t, int>>{{0, 100}, {100, 0}, {1, 100}, {0, 0}}) {
    CountingNotifier notifier;
    CompletionQueue cq(16, &notifier);
    cq.moderate(count, microseconds(period));
    EXPECT_FALSE(cq.moderated());
    cq.arm(Arm::kAny);
    cq.push(cqe(1));
    EXPECT_EQ(notifier.count, 1);
  }
}

TEST(CompletionQueueModeration, ChangingItDeliversWhatWasHeldBack) {
  CountingNotifier notifier;
  CompletionQueue cq(16, &notifier);
  cq.moderate(10, microseconds(100));
  cq.arm(Arm::kAny);
  cq.push(cqe(1, at(1)));
  cq.moderate(0, microseconds(0));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_EQ(cq.deadline(), kNever);
}

}  // namespace
}  // namespace uroce::queue

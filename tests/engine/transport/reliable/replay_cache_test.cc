// SPDX-License-Identifier: BSD-2-Clause
// What a responder remembers of READs and atomics, on its own: which one lies behind a PSN, however old the others are.
#include "engine/transport/reliable/replay_cache.h"

#include <array>
#include <gtest/gtest.h>

namespace uroce::transport {
namespace {

using wire::Psn;

class ReplayCacheOrder : public testing::Test {
 protected:
  ReplayCacheOrder() { cache_.move_to(room_); }

  void remember(uint32_t psn, uint32_t count = 1) {
    ReplayEntry& entry = cache_.add();
    entry.kind = ReplayEntry::Kind::kRead;
    entry.first = Psn(psn & wire::kMask24);
    entry.count = count;
  }
  // PSN of the first one between, or -1.
  int64_t between(uint32_t psn, uint32_t end) const {
    const ReplayEntry* found = cache_.first_between(Psn(psn & wire::kMask24), Psn(end & wire::kMask24));
    return found == nullptr ? -1 : static_cast<int64_t>(found->first.value());
  }

  std::array<ReplayEntry, 16> room_;
  ReplayCache cache_;
};

TEST_F(ReplayCacheOrder, FirstBetween) {
  EXPECT_EQ(between(10, 20), -1);
  remember(11, 4);
  remember(15);
  remember(18);
  EXPECT_EQ(between(10, 20), 11);
  EXPECT_EQ(between(11, 20), 15);  // behind the READ's request
  EXPECT_EQ(between(14, 20), 15);
  EXPECT_EQ(between(15, 20), 18);
  EXPECT_EQ(between(18, 20), -1);
}

TEST_F(ReplayCacheOrder, AcrossTheWrap) {
  remember(0xfffffe);
  remember(2);
  EXPECT_EQ(between(0xfffffd, 5), 0xfffffe);
  EXPECT_EQ(between(0xfffffe, 5), 2);
  EXPECT_EQ(between(2, 5), -1);
}

TEST_F(ReplayCacheOrder, OlderThanHalfOfThePsns) {
  constexpr uint32_t kOld = 1000;
  remember(kOld);
  for (const uint32_t age : {100u, (1u << 23) - 1, 1u << 23, (1u << 23) + 10, (1u << 24) - 128, (1u << 24) - 1}) {
    SCOPED_TRACE(age);
    const uint32_t end = kOld + age;
    EXPECT_EQ(between(end - 50, end), -1);
    EXPECT_EQ(between(end - 1, end), -1);
  }
}

// The entries, oldest first, have come from anywhere in the old ring; those that are still to be answered are so.
TEST(ReplayCacheRoom, GrowsWhileRequestsAreAnswered) {
  for (uint32_t remembered = 0; remembered <= 7; ++remembered) {
    SCOPED_TRACE(remembered);
    std::array<ReplayEntry, 3> small;
    std::array<ReplayEntry, 5> large;
    ReplayCache cache;
    cache.move_to(small);
    for (uint32_t psn = 0; psn < remembered; ++psn) {
      ReplayEntry& entry = cache.add();
      entry.kind = ReplayEntry::Kind::kBare;
      entry.first = Psn(psn);
      entry.count = 1;
      if (psn + 2 < remembered) cache.answered(entry);  // but the last two
    }
    const uint32_t answering = cache.answering();
    cache.move_to(large);
    EXPECT_EQ(cache.size(), 5u);
    EXPECT_EQ(cache.answering(), answering);
    const uint32_t oldest = remembered < 3 ? 0 : remembered - 3;
    for (uint32_t psn = 0; psn < remembered; ++psn) EXPECT_EQ(cache.find(Psn(psn)) != nullptr, psn >= oldest) << psn;
    for (uint32_t n = 0; n < answering; ++n) {
      ReplayEntry* const next = cache.next_to_answer();
      ASSERT_NE(next, nullptr);
      EXPECT_EQ(next->first, Psn(remembered - answering + n));
      cache.answered(*next);
    }
    for (uint32_t psn = remembered; psn < remembered + 5; ++psn) {
      ReplayEntry& entry = cache.add();
      entry.kind = ReplayEntry::Kind::kBare;
      entry.first = Psn(psn);
      entry.count = 1;
      cache.answered(entry);
    }
    for (uint32_t psn = 0; psn < remembered + 5; ++psn) EXPECT_EQ(cache.find(Psn(psn)) != nullptr, psn >= remembered);
  }
}

TEST(ReplayCacheRoom, WithoutRoomNothingIsFound) {
  ReplayCache cache;
  cache.reset();
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.find(Psn(0)), nullptr);
  EXPECT_EQ(cache.first_between(Psn(0), Psn(100)), nullptr);
  EXPECT_EQ(cache.next_to_answer(), nullptr);
}

}  // namespace
}  // namespace uroce::transport

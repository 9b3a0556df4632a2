// SPDX-License-Identifier: BSD-2-Clause
// Quotas: limits hold exactly, a closed account has nothing, and nobody can take more than there is.
#include "engine/objects/quota.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace uroce::engine {
namespace {

TEST(Quota, EveryKindHasALimit) {
  for (size_t kind = 0; kind < kObjectKinds; ++kind) EXPECT_GT(limit_of(static_cast<ObjectKind>(kind)), 0u);
}

TEST(Quota, HoldsExactly) {
  Quota quota;
  for (uint32_t i = 0; i < Limits::kMaxPd; ++i) ASSERT_TRUE(quota.take(ObjectKind::kPd));
  EXPECT_FALSE(quota.take(ObjectKind::kPd));
  EXPECT_TRUE(quota.take(ObjectKind::kCq)) << "another kind";
  quota.give(ObjectKind::kPd);
  EXPECT_TRUE(quota.take(ObjectKind::kPd));
  EXPECT_FALSE(quota.take(ObjectKind::kPd));
}

TEST(QuotaAccount, SharesTheQuotaAndGivesItBackWhenClosed) {
  Quota quota;
  QuotaAccount one(quota), two(quota);
  for (uint32_t i = 0; i < Limits::kMaxPd; ++i) ASSERT_TRUE((i % 2 == 0 ? one : two).take(ObjectKind::kPd));
  EXPECT_FALSE(two.take(ObjectKind::kPd));
  one.close();
  EXPECT_EQ(quota.used(ObjectKind::kPd), Limits::kMaxPd / 2);
  EXPECT_FALSE(one.take(ObjectKind::kPd)) << "closed";
  one.give(ObjectKind::kPd);  // an object that outlived its device
  EXPECT_EQ(quota.used(ObjectKind::kPd), Limits::kMaxPd / 2);
  EXPECT_TRUE(two.take(ObjectKind::kPd));
}

TEST(QuotaAccount, ThreadsTakeNoMoreThanThereIs) {
  Quota quota;
  QuotaAccount account(quota);
  std::atomic<uint32_t> taken{0};
  const auto take_all = [&] {
    while (account.take(ObjectKind::kSrq)) ++taken;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_all);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, Limits::kMaxSrq);
  EXPECT_EQ(quota.used(ObjectKind::kSrq), Limits::kMaxSrq);
}

}  // namespace
}  // namespace uroce::engine

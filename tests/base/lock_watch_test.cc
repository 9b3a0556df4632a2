// SPDX-License-Identifier: BSD-2-Clause
// That the watch over locks sees what it is for (progress.md "Progress").
#include "base/lock_watch.h"

#include <gtest/gtest.h>
#include <mutex>

#include "base/fork.h"

namespace uroce {
namespace {

#ifdef UROCE_WATCHES_LOCKS
TEST(LockWatchDeathTest, NoOtherLockIsTakenUnderAShardsLock) {
  ShardLock shard;
  std::mutex other;
  EXPECT_DEATH(
      {
        const std::lock_guard holding(shard);
        const std::lock_guard waits(other);
      },
      "under a shard's lock");
  EXPECT_DEATH(
      {
        const std::lock_guard holding(shard);
        const ForkGuard waits;
      },
      "may_wait");
}
#endif

TEST(LockWatch, LeavesAreAllowedAndOthersWhenItIsFree) {
  ShardLock shard;
  LeafMutex leaf;
  std::mutex other;
  for (int i = 0; i < 2; ++i) {
    {
      const std::lock_guard holding(shard);
      EXPECT_FALSE(shard.try_lock());
      const std::lock_guard short_while(leaf);
      EXPECT_FALSE(leaf.try_lock());
    }
    const std::lock_guard waits(other);
    const ForkGuard guard;
  }
}

}  // namespace
}  // namespace uroce

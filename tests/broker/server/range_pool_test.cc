// SPDX-License-Identifier: BSD-2-Clause
// Who gets which ranges of QP numbers.
#include "broker/server/range_pool.h"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

namespace uroce::broker {
namespace {

constexpr uint32_t kCount = 200;
constexpr uid_t kHostile = 1, kOther = 2;

class RangePoolTest : public testing::Test {
 protected:
  // Takes one and returns it, so often.
  std::set<uint32_t> cycle(uid_t user, int times) {
    std::set<uint32_t> had;
    for (int i = 0; i < times; ++i) {
      const auto number = pool_.take(user);
      had.insert(number.value());
      pool_.release(*number, user);
    }
    return had;
  }

  RangePool pool_{kCount, [random = std::mt19937(1)]() mutable { return static_cast<uint32_t>(random()); }};
};

TEST_F(RangePoolTest, WhoReturnsThemGetsThemAgain) {
  const std::set<uint32_t> his = cycle(kHostile, 10 * kCount);
  EXPECT_EQ(his.size(), RangePool::kRest);
  for (const uint32_t number : cycle(kOther, 10 * kCount)) EXPECT_FALSE(his.contains(number)) << number;
}

TEST_F(RangePoolTest, OneThatComesBackRests) {
  std::vector<uint32_t> in_turn;
  for (int i = 0; i < 500; ++i) {
    const uint32_t number = pool_.take(kOther).value();
    const auto lately = in_turn.end() - std::min<ptrdiff_t>(RangePool::kRest / 2, std::ssize(in_turn));
    EXPECT_EQ(std::find(lately, in_turn.end(), number), in_turn.end()) << i;
    in_turn.push_back(number);
    pool_.release(number, kOther);
  }
}

TEST_F(RangePoolTest, AllAreGivenOnceAndThoseOfOthersLast) {
  const std::set<uint32_t> others = cycle(kOther, 20);
  std::set<uint32_t> all;
  for (uint32_t i = 0; i < kCount; ++i) {
    const auto number = pool_.take(kHostile);
    ASSERT_TRUE(number && *number < kCount && all.insert(*number).second);
    EXPECT_EQ(others.contains(*number), i >= kCount - others.size()) << i;
  }
  EXPECT_EQ(pool_.take(kHostile), std::nullopt);
}

// As who comes with a lease of an earlier broker does.
TEST_F(RangePoolTest, OneIsTakenByName) {
  const uint32_t his = *cycle(kHostile, 1).begin();
  EXPECT_TRUE(pool_.take_this(his));
  EXPECT_FALSE(pool_.take_this(his)) << "it is leased";
  EXPECT_FALSE(pool_.take_this(kCount));
  pool_.release(his, std::nullopt);
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_TRUE(pool_.take_this(i)) << i;
}

}  // namespace
}  // namespace uroce::broker

// SPDX-License-Identifier: BSD-2-Clause
// Numbers that somebody asks for by name, among those that are given out at random. (Random ones: qpn_space_test.cc.)
#include "base/number_allocator.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

namespace uroce {
namespace {

constexpr uint32_t kCount = 32;

class NumberAllocatorTest : public testing::Test {
 protected:
  NumberAllocator numbers_{kCount, [random = std::mt19937(1)]() mutable { return static_cast<uint32_t>(random()); }};
};

TEST_F(NumberAllocatorTest, OneInUseOrUnknownIsNotGiven) {
  EXPECT_TRUE(numbers_.take(7));
  EXPECT_FALSE(numbers_.take(7));
  EXPECT_FALSE(numbers_.take(kCount));
  EXPECT_EQ(numbers_.used(), 1u);
  for (uint32_t i = 1; i < kCount; ++i) EXPECT_NE(numbers_.take(), 7u);
  EXPECT_EQ(numbers_.take(), std::nullopt);
}

// First, last and in the middle of those that rest; afterwards all numbers are there once.
TEST_F(NumberAllocatorTest, OneThatRestsIsWokenByName) {
  for (int round = 0; round < 200; ++round) {
    std::vector<uint32_t> taken;
    for (int i = 0; i < 10; ++i) taken.push_back(*numbers_.take());
    for (const uint32_t number : taken) numbers_.release(number);
    const uint32_t wanted = taken[static_cast<size_t>(round) % taken.size()];
    ASSERT_TRUE(numbers_.take(wanted));
    std::set<uint32_t> all{wanted};
    while (const auto number = numbers_.take()) EXPECT_TRUE(all.insert(*number).second);
    ASSERT_EQ(all.size(), kCount);
    for (const uint32_t number : all) numbers_.release(number);
  }
}

}  // namespace
}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// Which numbers QPs get, and how long those that became free rest.
#include "engine/objects/qpn_space.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace uroce::engine {
namespace {

constexpr uint32_t kFirst = 0x10000, kCount = 64;

class QpnSpaceTest : public testing::Test {
 protected:
  uint32_t take() {
    wire::Qpn qpn;
    EXPECT_TRUE(space_.take(qpn));
    return qpn.value();
  }
  void release(uint32_t number) { space_.release(wire::Qpn(number)); }
  std::vector<uint32_t> take(size_t count) {
    std::vector<uint32_t> numbers;
    while (numbers.size() < count) numbers.push_back(take());
    return numbers;
  }
  QpnSpace space_{kFirst, kCount, [random = std::mt19937(1)]() mutable { return static_cast<uint32_t>(random()); }};
};

TEST_F(QpnSpaceTest, AllNumbersCanBeInUse) {
  const std::vector<uint32_t> all = take(kCount);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), kCount);
  EXPECT_GE(*std::min_element(all.begin(), all.end()), kFirst);
  EXPECT_LT(*std::max_element(all.begin(), all.end()), kFirst + kCount);
  wire::Qpn none;
  EXPECT_FALSE(space_.take(none));
  release(all[5]);
  EXPECT_EQ(take(), all[5]) << "the last one does not rest";
  EXPECT_FALSE(space_.take(none));
}

TEST_F(QpnSpaceTest, FreedNumberRestsWhileHalfOfTheSpaceComesAndGoes) {
  std::vector<size_t> freed_at(kCount, 0);
  std::set<uint32_t> seen;
  for (size_t n = 1; n <= 100 * kCount; ++n) {
    const uint32_t number = take();
    size_t& before = freed_at[number - kFirst];
    if (before != 0) {
      ASSERT_GE(n - before, kCount / 2) << "number " << number;
    }
    release(number);
    before = n;
    seen.insert(number);
  }
  EXPECT_EQ(seen.size(), kCount) << "and none rests for ever";
}

TEST_F(QpnSpaceTest, WithFewLeftTheLongestRestedGoFirst) {
  const std::vector<uint32_t> all = take(kCount);
  for (const size_t i : {7, 3, 40, 12}) release(all[i]);
  EXPECT_EQ((std::set{take(), take()}), (std::set{all[7], all[3]}));
  EXPECT_EQ((std::set{take(), take()}), (std::set{all[40], all[12]}));
}

// A program that makes and destroys QPs without end never runs out, however full the space is.
TEST_F(QpnSpaceTest, NeverRunsOutWhileNumbersAreFree) {
  std::mt19937 random(2);
  std::vector<uint32_t> used;
  for (int n = 0; n < 4000; ++n) {
    if (used.size() < kCount && (used.empty() || random() % 16 != 0)) {
      used.push_back(take());
    } else {
      std::swap(used[random() % used.size()], used.back());
      release(used.back());
      used.pop_back();
    }
    ASSERT_EQ(std::set(used.begin(), used.end()).size(), used.size());
    ASSERT_EQ(space_.used(), used.size());
  }
}

// The shards of a device have the numbers of its range by turns, and none finds the QPs of another.
TEST(QpnSpaces, ShardsTakeTurns) {
  constexpr uint32_t kShards = 4;
  const auto random = [engine = std::mt19937(2)]() mutable { return static_cast<uint32_t>(engine()); };
  std::vector<std::unique_ptr<QpnSpace>> spaces;
  for (uint32_t i = 0; i < kShards; ++i) {
    spaces.push_back(std::make_unique<QpnSpace>(kFirst + i, kCount, random, kShards));
  }
  auto* const somebody = reinterpret_cast<Qp*>(64);
  std::set<uint32_t> all;
  for (uint32_t i = 0; i < kShards; ++i) {
    for (uint32_t n = 0; n < kCount; ++n) {
      wire::Qpn qpn;
      ASSERT_TRUE(spaces[i]->take(qpn));
      spaces[i]->bind(qpn, somebody);
      all.insert(qpn.value());
      EXPECT_EQ(qpn.value() % kShards, i);
      for (uint32_t other = 0; other < kShards; ++other) {
        EXPECT_EQ(spaces[other]->find(qpn), other == i ? somebody : nullptr);
      }
    }
  }
  EXPECT_EQ(all.size(), kShards * kCount);
  EXPECT_EQ(*all.begin(), kFirst);
  EXPECT_EQ(*all.rbegin(), kFirst + kShards * kCount - 1);
  for (const uint32_t outside : {0u, kFirst - 1, kFirst + kShards * kCount, 0xffffffu}) {
    for (const auto& space : spaces) EXPECT_EQ(space->find(wire::Qpn(outside)), nullptr);
  }
}

}  // namespace
}  // namespace uroce::engine

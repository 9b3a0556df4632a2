// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/srq.h"

#include <gtest/gtest.h>

namespace uroce::engine {
namespace {

TEST(SrqNumbers, AreNeverTwoTheSameNorZero) {
  SrqTable table;
  SrqInit settings{.xrcd = 1};
  const uint32_t first = table.next_number();
  ASSERT_NE(first, 0u);
  Srq one(settings, first);
  table.add(one);
  Srq two(settings, table.next_number());
  EXPECT_NE(two.srqn, first);
  table.add(two);
  EXPECT_EQ(table.find(1, first), &one.target);
  EXPECT_EQ(table.find(2, first), nullptr) << "another domain";
  EXPECT_EQ(table.find(0, first), nullptr);
  table.remove(one);
  EXPECT_EQ(table.find(1, first), nullptr);
  EXPECT_EQ(table.find(1, two.srqn), &two.target);
}

}  // namespace
}  // namespace uroce::engine

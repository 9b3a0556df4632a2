// SPDX-License-Identifier: BSD-2-Clause
// Who waits for one of its channels while there are events of others.
#include "abi/verbs/single_wait.h"

#include <gtest/gtest.h>

namespace uroce::verbs::test {
namespace {

class SingleWaitTest : public testing::Test {
 protected:
  SingleWait wait;
  const char one{}, other{};
};

TEST_F(SingleWaitTest, WhoComesBackWhileOthersHaveEventsHasWaitedForOne) {
  EXPECT_FALSE(wait.ends(&one, 7));
  wait.asked(&one, 1, 7);
  EXPECT_TRUE(wait.ends(&one, 7));
  EXPECT_FALSE(wait.ends(&one, 7)) << "once";
}

TEST_F(SingleWaitTest, WhoHasGoneElsewhereHasNot) {
  wait.asked(&one, 1, 7);
  EXPECT_FALSE(wait.ends(&other, 7));
  EXPECT_FALSE(wait.ends(&one, 7));
}

TEST_F(SingleWaitTest, NorWhereThereWasNothingElse) {
  wait.asked(&one, 0, 7);
  EXPECT_FALSE(wait.ends(&one, 7));
}

// Another thread looks after them.
TEST_F(SingleWaitTest, NorWhereTheOthersEventsWereTaken) {
  wait.asked(&one, 1, 7);
  EXPECT_FALSE(wait.ends(&one, 8));
}

}  // namespace
}  // namespace uroce::verbs::test

// SPDX-License-Identifier: BSD-2-Clause
// Who wants to meet whom, and who has met (broker/server/meetings.h).
#include "broker/server/meetings.h"

#include <chrono>
#include <gtest/gtest.h>

#include "broker/server/bounds.h"

namespace uroce::broker {
namespace {

constexpr Time kNow{std::chrono::seconds(1)};

TEST(Meetings, WhoCouldNotBeToldIsMetLater) {
  Meetings meetings;
  EXPECT_TRUE(meetings.wish(1, 2, true, kNow));
  meetings.put_off(2, 1, kNow + kPutOff);
  EXPECT_FALSE(meetings.wish(1, 2, true, kNow + kPutOff / 2));
  EXPECT_FALSE(meetings.wish(2, 1, true, kNow + kPutOff / 2));
  EXPECT_TRUE(meetings.wish(1, 3, true, kNow + kPutOff / 2)) << "others are not concerned";
  EXPECT_TRUE(meetings.wish(3, 2, true, kNow + kPutOff / 2));
  EXPECT_TRUE(meetings.wish(1, 2, true, kNow + kPutOff));
}

TEST(Meetings, WhoCouldNotBeToldOfSoManyMeetsNobody) {
  Meetings meetings;
  for (uint32_t other = 2; other < 2 + kMostWishes; ++other) meetings.put_off(1, other, kNow + kPutOff);
  constexpr auto kOneMore = static_cast<uint32_t>(2 + kMostWishes);
  EXPECT_FALSE(meetings.wish(kOneMore, 1, true, kNow));
  EXPECT_TRUE(meetings.wish(kOneMore, 1, true, kNow + kPutOff));
}

TEST(Meetings, SoManyWishesOfARangeAreRemembered) {
  Meetings meetings;
  for (uint32_t other = 2; other < 2 + kMostWishes + 1; ++other) EXPECT_FALSE(meetings.wish(1, other, false, kNow));
  constexpr auto kFirst = 2, kTooMany = static_cast<int>(2 + kMostWishes);
  EXPECT_FALSE(meetings.wish(kTooMany, 1, false, kNow));
  EXPECT_TRUE(meetings.wish(kFirst, 1, false, kNow));
  meetings.settle(kFirst, 1);
  EXPECT_FALSE(meetings.wish(1, kTooMany + 1, false, kNow)) << "there is room for one more";
  EXPECT_TRUE(meetings.wish(kTooMany + 1, 1, false, kNow));
}

TEST(Meetings, ARangeMeetsSoMany) {
  Meetings meetings;
  for (uint32_t other = 2; other < 2 + kMostMet; ++other) {
    ASSERT_TRUE(meetings.wish(1, other, true, kNow));
    meetings.settle(1, other);
  }
  constexpr auto kOneMore = static_cast<uint32_t>(2 + kMostMet);
  EXPECT_FALSE(meetings.wish(1, kOneMore, true, kNow));
  EXPECT_FALSE(meetings.wish(kOneMore, 1, true, kNow));
  meetings.forget(2);
  EXPECT_TRUE(meetings.wish(1, kOneMore, true, kNow));
  EXPECT_EQ(meetings.met(1).size(), kMostMet - 1);
}

}  // namespace
}  // namespace uroce::broker

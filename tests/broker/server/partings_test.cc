// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/partings.h"

#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

namespace uroce::broker {
namespace {

constexpr Time kEnd = Time(std::chrono::seconds(10));

struct Clients {
  explicit Clients(std::set<uint32_t> do_not_listen = {}) : deaf(std::move(do_not_listen)) {}
  std::set<uint32_t> deaf;
  std::vector<std::pair<uint32_t, uint32_t>> told;
  std::set<uint32_t> have_not_read;
  int asked = 0;
  Partings::Tell tell() {
    return [this](uint32_t other, uint32_t range) {
      ++asked;
      if (deaf.contains(other)) return false;
      told.emplace_back(other, range);
      return true;
    };
  }
  void look(Partings& partings, Time now = {}) {
    partings.look(
        now, [this](uint32_t other) { return !have_not_read.contains(other); }, tell());
  }
};

TEST(Partings, WhoListensIsToldAtOnce) {
  Clients clients;
  Partings partings;
  partings.add(1, 7, kEnd, clients.tell());
  EXPECT_EQ(clients.told, (std::vector<std::pair<uint32_t, uint32_t>>{{1, 7}}));
  EXPECT_TRUE(partings.are_of(7)) << "it has not read it";
  clients.have_not_read = {1};
  clients.look(partings);
  EXPECT_TRUE(partings.are_of(7));
  clients.have_not_read.clear();
  clients.look(partings);
  EXPECT_FALSE(partings.any() || partings.are_of(7));
  EXPECT_EQ(clients.asked, 1) << "is told once";
}

TEST(Partings, WhoDoesNotReadIsNotWaitedForLonger) {
  Clients clients;
  clients.have_not_read = {1};
  Partings partings;
  partings.add(1, 7, kEnd, clients.tell());
  clients.look(partings, kEnd - Duration(1));
  EXPECT_TRUE(partings.are_of(7));
  clients.look(partings, kEnd);
  EXPECT_FALSE(partings.are_of(7));
}

TEST(Partings, WhoListensAgainIsToldInOrder) {
  Clients clients({1});
  Partings partings;
  partings.add(1, 7, kEnd, clients.tell());
  clients.deaf.clear();
  partings.add(1, 8, kEnd, clients.tell());
  EXPECT_TRUE(clients.told.empty());
  EXPECT_TRUE(partings.are_of(7) && partings.are_of(8));
  EXPECT_TRUE(partings.is_untold(1, 7) && partings.is_untold(1, 8));
  EXPECT_FALSE(partings.is_untold(2, 7) || partings.is_untold(1, 9));
  clients.look(partings);
  EXPECT_EQ(clients.told, (std::vector<std::pair<uint32_t, uint32_t>>{{1, 7}, {1, 8}}));
  EXPECT_TRUE(partings.are_of(7) && partings.are_of(8)) << "it has read what was before";
  EXPECT_FALSE(partings.is_untold(1, 7) || partings.is_untold(1, 8));
  clients.look(partings);
  EXPECT_FALSE(partings.any() || partings.are_of(7) || partings.are_of(8));
}

TEST(Partings, ARangeIsKeptForAllWhoAreToHear) {
  Clients clients({1, 2});
  Partings partings;
  for (const uint32_t other : {1u, 2u}) partings.add(other, 7, kEnd, clients.tell());
  clients.deaf = {2};
  clients.look(partings);
  EXPECT_TRUE(partings.are_of(7));
  clients.look(partings, kEnd - Duration(1));
  EXPECT_TRUE(partings.are_of(7));
  clients.look(partings, kEnd);
  EXPECT_FALSE(partings.are_of(7)) << "is not waited for longer";
}

TEST(Partings, OfWhoDoesNotListenItAsksOnce) {
  Clients clients({1});
  Partings partings;
  for (uint32_t range = 2; range < 200; ++range) partings.add(1, range, kEnd, clients.tell());
  EXPECT_EQ(clients.asked, 1);
  clients.look(partings);
  EXPECT_EQ(clients.asked, 2);
}

}  // namespace
}  // namespace uroce::broker

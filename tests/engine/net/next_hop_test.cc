// SPDX-License-Identifier: BSD-2-Clause
// NextHop and NextHops by themselves: what is told of a neighbour, when the kernel is to be asked, what is forgotten.
#include "engine/net/next_hop.h"

#include <gtest/gtest.h>

#include "engine/net/net_view.h"

namespace uroce::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

wire::IpAddress v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return wire::IpAddress::v4(std::array<uint8_t, 4>{a, b, c, d}.data());
}

const wire::MacAddress kMac{0x02, 0x11, 0x22, 0x33, 0x44, 0xff};
const Neighbour kUsable{NeighbourState::kUsable, kMac};
const Neighbour kStale{NeighbourState::kStale, kMac};
const Neighbour kFailed{NeighbourState::kFailed, {}};
const Neighbour kResolving{NeighbourState::kResolving, {}};

TEST(NextHop, IsWhatItWasSetTo) {
  NextHop hop(3, v4(192, 0, 2, 1));
  EXPECT_EQ(hop.neighbour(), Neighbour{});
  for (const Neighbour& neighbour : {kUsable, kStale, kFailed, Neighbour{}, kResolving}) {
    hop.set(neighbour);
    EXPECT_EQ(hop.neighbour(), neighbour);
  }
}

TEST(NextHop, TellsOnceThatItWasDecidedForWhomWaits) {
  NextHop hop(3, v4(192, 0, 2, 1));
  EXPECT_FALSE(hop.set(kUsable)) << "nobody waits";
  hop.set({});
  hop.await();
  EXPECT_FALSE(hop.set(kResolving)) << "nothing is decided";
  EXPECT_TRUE(hop.set(kUsable));
  EXPECT_FALSE(hop.set(kStale));
  hop.await();
  EXPECT_FALSE(hop.set(kStale)) << "nothing has changed";
  EXPECT_TRUE(hop.set(kFailed));
}

TEST(NextHop, FailedStaysFailedWhileTheKernelTriesAgain) {
  NextHop hop(3, v4(192, 0, 2, 1), kFailed);
  hop.set(kResolving);
  EXPECT_EQ(hop.neighbour(), kFailed);
  hop.set({});  // the kernel has forgotten it, so shall we
  hop.set(kResolving);
  EXPECT_EQ(hop.neighbour(), kResolving);
}

TEST(NextHop, IsAskedForNowAndThenWhileItIsNeeded) {
  NextHop hop(3, v4(192, 0, 2, 1));
  Time now{};
  EXPECT_TRUE(hop.ask_now(now));
  EXPECT_FALSE(hop.ask_now(now + milliseconds(99)));
  EXPECT_TRUE(hop.ask_now(now += milliseconds(100)));
  hop.set(kUsable);
  EXPECT_FALSE(hop.ask_now(now += seconds(100)));
  hop.set(kStale);
  EXPECT_TRUE(hop.ask_now(now));
  EXPECT_FALSE(hop.ask_now(now + milliseconds(4999))) << "the kernel takes five seconds before it probes";
  EXPECT_TRUE(hop.ask_now(now + seconds(5)));
}

TEST(NextHops, AreSharedAsLongAsSomebodyHoldsThem) {
  NextHops hops;
  const auto hop = hops.add(3, v4(192, 0, 2, 1), kUsable);
  EXPECT_EQ(hops.find(3, v4(192, 0, 2, 1)), hop);
  EXPECT_EQ(hops.find(4, v4(192, 0, 2, 1)), nullptr);
  hops.add(3, v4(192, 0, 2, 2), kUsable);
  EXPECT_EQ(hops.find(3, v4(192, 0, 2, 2)), nullptr) << "nobody holds it";
}

TEST(NextHops, DoNotGrowWithAddressesUsedInThePast) {
  NextHops hops;
  std::vector<std::shared_ptr<NextHop>> held;
  for (uint32_t i = 0; i < 10000; ++i) {
    auto hop = hops.add(3, v4(10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)), kUsable);
    if (i % 100 == 0) held.push_back(std::move(hop));
  }
  EXPECT_LE(hops.size(), 2 * held.size() + 64);
  size_t seen = 0;
  hops.for_each([&](NextHop&) { ++seen; });
  EXPECT_EQ(seen, held.size());
}

TEST(Prefix, CoversItsRangeOfItsFamily) {
  const auto covers = [](const wire::IpAddress& base, uint8_t length, const wire::IpAddress& other) {
    return Prefix{base, length}.covers(other);
  };
  const wire::IpAddress any = v4(0, 0, 0, 0);
  EXPECT_TRUE(covers(any, 96, v4(198, 51, 100, 1)));
  EXPECT_TRUE(covers(v4(198, 51, 100, 0), 96 + 24, v4(198, 51, 100, 255)));
  EXPECT_FALSE(covers(v4(198, 51, 100, 0), 96 + 24, v4(198, 51, 101, 0)));
  EXPECT_TRUE(covers(v4(198, 51, 100, 128), 96 + 25, v4(198, 51, 100, 129)));
  EXPECT_FALSE(covers(v4(198, 51, 100, 128), 96 + 25, v4(198, 51, 100, 127)));
  EXPECT_TRUE(covers(v4(198, 51, 100, 1), 128, v4(198, 51, 100, 1)));
  EXPECT_FALSE(covers(v4(198, 51, 100, 1), 128, v4(198, 51, 100, 0)));
  wire::IpAddress v6;
  v6.bytes = {0x20, 0x01, 0x0d, 0xb8};
  EXPECT_TRUE(covers({}, 0, v6));
  EXPECT_FALSE(covers({}, 0, v4(198, 51, 100, 1)));
  EXPECT_FALSE(covers(any, 96, v6));
  EXPECT_TRUE(covers(v6, 33, v6));
}

TEST(News, NamesRoutesUpToABound) {
  News news;
  EXPECT_FALSE(static_cast<bool>(news));
  const wire::IpAddress other = v4(203, 0, 113, 1);
  for (size_t i = 0; i < News::kMostRoutes; ++i) news.add_route({v4(198, 51, static_cast<uint8_t>(i), 0), 96 + 24});
  EXPECT_TRUE(news.concern_route_to(v4(198, 51, 63, 9)));
  EXPECT_FALSE(news.concern_route_to(other));
  News more;
  more.add_route({v4(192, 0, 2, 0), 96 + 24});
  news += more;
  EXPECT_TRUE(news.routes.empty());
  EXPECT_TRUE(news.concern_route_to(other)) << "too many to name";
}

}  // namespace
}  // namespace uroce::net

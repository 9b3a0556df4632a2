// SPDX-License-Identifier: BSD-2-Clause
// NetView::route(): what the kernel would do with a packet from a source to a destination on a given netdev.
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "engine/net/net_view.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

class NetRouteTest : public NetViewTest {
 protected:
  void SetUp() override {
    NetViewTest::SetUp();
    if (IsSkipped()) return;
    run("ip addr add 192.0.2.1/24 dev va0; ip addr add 2001:db8::1/64 dev va0 nodad");
    open(3);
  }

  std::optional<Route> from_v4(const std::string& destination) {
    return view_->route(index_, ip("192.0.2.1"), ip(destination));
  }
  std::optional<Route> from_v6(const std::string& destination) {
    return view_->route(index_, ip("2001:db8::1"), ip(destination));
  }
  static std::optional<wire::IpAddress> next_hop(const std::optional<Route>& route) {
    return route ? std::optional(route->next_hop) : std::nullopt;
  }
};

TEST_F(NetRouteTest, OnLink) {
  auto v4 = from_v4("192.0.2.9");
  ASSERT_TRUE(v4);
  EXPECT_EQ(v4->next_hop, ip("192.0.2.9"));
  EXPECT_EQ(v4->mtu, 1500u);
  EXPECT_EQ(v4->hop_limit, 64);
  EXPECT_FALSE(v4->local);
  EXPECT_EQ(next_hop(from_v6("2001:db8::9")), ip("2001:db8::9"));
  EXPECT_EQ(next_hop(view_->route(index_, ip("fe80::a"), ip("fe80::b"))), ip("fe80::b"));
  EXPECT_EQ(next_hop(view_->route(index_, {}, ip("192.0.2.9"))), ip("192.0.2.9"));  // the kernel picks the source
}

TEST_F(NetRouteTest, Gateway) {
  run("ip route add 198.51.100.0/24 via 192.0.2.254; ip -6 route add 2001:db8:1::/48 via fe80::b dev va0;"
      "ip route add 203.0.113.0/24 via inet6 fe80::b dev va0");
  EXPECT_EQ(next_hop(from_v4("198.51.100.7")), ip("192.0.2.254"));
  EXPECT_EQ(next_hop(from_v6("2001:db8:1::7")), ip("fe80::b"));
  EXPECT_EQ(next_hop(from_v4("203.0.113.7")), ip("fe80::b"));  // RFC 5549
}

TEST_F(NetRouteTest, NextHopObject) {
  run("ip nexthop add id 7 via 192.0.2.253 dev va0; ip route add 198.51.100.0/24 nhid 7");
  EXPECT_EQ(next_hop(from_v4("198.51.100.7")), ip("192.0.2.253"));
  settle();
  run("ip nexthop replace id 7 via 192.0.2.252 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_EQ(next_hop(from_v4("198.51.100.7")), ip("192.0.2.252"));
}

TEST_F(NetRouteTest, NoRouteIsNotTakenForOnLink) {
  EXPECT_EQ(from_v4("198.51.100.7"), std::nullopt);
  EXPECT_EQ(from_v6("2001:db8:1::7"), std::nullopt);
}

TEST_F(NetRouteTest, RoutesOfOtherNetdevsDoNotCount) {
  run("ip link add vc0 type veth peer name vd0; ip link set vc0 up; ip link set vd0 up;"
      "ip addr add 198.51.100.1/24 dev vc0; ip addr add 2001:db8:1::1/64 dev vc0 nodad;"
      "ip route add default via 192.0.2.254; ip -6 route add default via 2001:db8::fe");
  settle();
  EXPECT_EQ(next_hop(from_v4("198.51.100.7")), ip("192.0.2.254"));
  EXPECT_EQ(next_hop(from_v6("2001:db8:1::7")), ip("2001:db8::fe"));
  EXPECT_FALSE(from_v6("2001:db8:1::1")->local);  // an address of vc0
  run("ip route del default; ip -6 route del default");
  EXPECT_EQ(from_v4("198.51.100.7"), std::nullopt);
  EXPECT_EQ(from_v6("2001:db8:1::7"), std::nullopt);
  EXPECT_EQ(from_v6("2001:db8:1::1"), std::nullopt);
}

TEST_F(NetRouteTest, UnreachableDestinations) {
  run("ip route add default via 192.0.2.254; ip -6 route add default via fe80::b dev va0;"
      "ip route add blackhole 198.51.100.0/24; ip route add unreachable 203.0.113.0/24;"
      "ip -6 route add blackhole 2001:db8:1::/48; ip -6 route add unreachable 2001:db8:2::/48");
  for (const char* destination : {"198.51.100.7", "203.0.113.7", "192.0.2.255", "0.0.0.0"}) {
    EXPECT_EQ(from_v4(destination), std::nullopt) << destination;
  }
  for (const char* destination : {"2001:db8:1::7", "2001:db8:2::7", "::"}) {
    EXPECT_EQ(from_v6(destination), std::nullopt) << destination;
  }
  EXPECT_EQ(view_->route(index_, ip("192.0.2.77"), ip("192.0.2.9")), std::nullopt) << "source is not ours";
}

TEST_F(NetRouteTest, OwnAddressIsLocal) {
  for (auto route : {from_v4("192.0.2.1"), from_v6("2001:db8::1"), view_->route(index_, {}, ip("fe80::a"))}) {
    ASSERT_TRUE(route);
    EXPECT_TRUE(route->local);
    EXPECT_EQ(route->mtu, 1500u);
  }
}

TEST_F(NetRouteTest, MulticastIsOnLink) {
  EXPECT_EQ(next_hop(from_v4("239.1.2.3")), ip("239.1.2.3"));
  EXPECT_EQ(next_hop(from_v6("ff0e::123")), ip("ff0e::123"));
  run("ip route add default via 192.0.2.254; ip -6 route add default via fe80::b dev va0");
  EXPECT_EQ(next_hop(from_v4("239.1.2.3")), ip("239.1.2.3"));
  EXPECT_EQ(next_hop(from_v6("ff0e::123")), ip("ff0e::123"));
}

TEST_F(NetRouteTest, MetricsOfTheRoute) {
  run("ip route add 198.51.100.0/24 via 192.0.2.254 mtu 1400 hoplimit 17;"
      "ip -6 route add 2001:db8:1::/48 via fe80::b dev va0 mtu 1300 hoplimit 18;"
      "ip route add 203.0.113.0/24 via 192.0.2.254 mtu 9000");
  auto v4 = from_v4("198.51.100.7");
  ASSERT_TRUE(v4);
  EXPECT_EQ(v4->mtu, 1400u);
  EXPECT_EQ(v4->hop_limit, 17);
  auto v6 = from_v6("2001:db8:1::7");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->mtu, 1300u);
  EXPECT_EQ(v6->hop_limit, 18);
  EXPECT_EQ(from_v4("203.0.113.7")->mtu, 1500u) << "never more than the netdev's";
}

TEST_F(NetRouteTest, DefaultsOfTheNamespace) {
  run("echo 33 > /proc/sys/net/ipv4/ip_default_ttl; echo 34 > /proc/sys/net/ipv6/conf/va0/hop_limit;"
      "echo 1280 > /proc/sys/net/ipv6/conf/va0/mtu; ip addr add 198.51.100.1/24 dev va0");
  EXPECT_TRUE(settle());  // they are read anew with the next change of the netdev
  EXPECT_EQ(from_v4("192.0.2.9")->hop_limit, 33);
  EXPECT_EQ(from_v6("2001:db8::9")->hop_limit, 34);
  EXPECT_EQ(from_v4("192.0.2.9")->mtu, 1500u);
  EXPECT_EQ(from_v6("2001:db8::9")->mtu, 1280u);
}

TEST_F(NetRouteTest, SourceDecidesByRule) {
  run("ip addr add 192.0.2.2/24 dev va0; ip route add default via 192.0.2.254;"
      "ip route add default via 192.0.2.253 dev va0 table 100; ip rule add from 192.0.2.2 table 100;"
      "ip addr add 2001:db8::2/64 dev va0 nodad; ip -6 route add default via 2001:db8::fe;"
      "ip -6 route add default via 2001:db8::fd dev va0 table 100; ip -6 rule add from 2001:db8::2 table 100");
  EXPECT_EQ(next_hop(from_v4("198.51.100.7")), ip("192.0.2.254"));
  EXPECT_EQ(next_hop(view_->route(index_, ip("192.0.2.2"), ip("198.51.100.7"))), ip("192.0.2.253"));
  EXPECT_EQ(next_hop(from_v6("2001:db8:1::7")), ip("2001:db8::fe"));
  EXPECT_EQ(next_hop(view_->route(index_, ip("2001:db8::2"), ip("2001:db8:1::7"))), ip("2001:db8::fd"));
}

TEST_F(NetRouteTest, RouteChangesRaiseTheGeneration) {
  settle();
  for (const char* change : {"ip route add 198.51.100.0/24 via 192.0.2.254", "ip route del 198.51.100.0/24",
                             "ip -6 route add 2001:db8:1::/48 via fe80::b dev va0", "ip rule add to 10.0.0.0/8 table 9",
                             "ip -6 rule add to fd00::/8 table 9"}) {
    const uint64_t before = view_->generation();
    run(change);
    EXPECT_TRUE(settle()) << change;
    EXPECT_GT(view_->generation(), before) << change;
  }
}

TEST_F(NetRouteTest, NetdevDownHasNoRoutes) {
  run("ip link set va0 down");
  EXPECT_EQ(from_v4("192.0.2.9"), std::nullopt);
  EXPECT_EQ(from_v6("2001:db8::9"), std::nullopt);
  run("ip link set lo down");
  settle();
  EXPECT_EQ(view_->route(1, {}, ip("127.0.0.1")), std::nullopt);
}

TEST_F(NetRouteTest, ManyRoutes) {
  run("for i in $(seq 0 79); do for j in $(seq 0 99); do echo route add 10.$i.$j.0/24 via 192.0.2.$((i + 100));"
      "done; done | ip -batch -");
  EXPECT_TRUE(settle());
  EXPECT_EQ(next_hop(from_v4("10.33.44.5")), ip("192.0.2.133"));
  EXPECT_EQ(from_v4("10.80.0.1"), std::nullopt);
}

}  // namespace
}  // namespace uroce::net

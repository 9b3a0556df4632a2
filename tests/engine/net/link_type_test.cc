// SPDX-License-Identifier: BSD-2-Clause
// Netdevs that are no Ethernet (lo, tunnels), and those with a master.
#include <array>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <optional>
#include <string>

#include "engine/net/device_guid.h"
#include "engine/net/host_net.h"
#include "engine/net/rtnetlink.h"
#include "tests/engine/net/link_message.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

using testing::ElementsAre;

std::optional<rtnetlink::Link> parse(LinkMessage message) {
  return rtnetlink::parse_link(*message.header());
}

LinkMessage with_mac(uint16_t type, uint32_t flags = 0) {
  LinkMessage message(7, "x0", type, flags);
  const std::array<uint8_t, 6> mac{2, 0, 0, 0, 0, 1};
  message.put(IFLA_ADDRESS, mac.data(), mac.size());
  return message;
}

TEST(LinkType, FollowsFromTheKernelsType) {
  EXPECT_EQ(parse(with_mac(ARPHRD_ETHER))->netdev.type, LinkType::kEthernet);
  EXPECT_EQ(parse(with_mac(ARPHRD_LOOPBACK, IFF_LOOPBACK))->netdev.type, LinkType::kLoopback);
  for (const uint16_t type : {ARPHRD_NONE, ARPHRD_TUNNEL, ARPHRD_IPGRE, ARPHRD_SIT, ARPHRD_PPP}) {
    EXPECT_EQ(parse(LinkMessage(7, "x0", type))->netdev.type, LinkType::kIp) << type;
  }
}

// A GRE netdev has its end's IP address there, of 4 bytes, and one over IPv6 of 16; IPoIB one of 20.
TEST(LinkType, WhatIsNoEthernetHasNoMac) {
  for (const size_t length : {size_t{4}, size_t{6}, size_t{16}, size_t{20}}) {
    LinkMessage message(7, "x0", ARPHRD_IPGRE);
    const std::array<uint8_t, 20> address{1, 2, 3, 4, 5, 6};
    message.put(IFLA_ADDRESS, address.data(), length);
    const auto link = parse(message);
    EXPECT_EQ(link->netdev.mac, wire::MacAddress{});
    EXPECT_EQ(link->netdev.type, LinkType::kIp);
  }
}

std::optional<rtnetlink::Link> with_master(const char* port_kind, const char* kind = nullptr) {
  LinkMessage message = with_mac(ARPHRD_ETHER);
  const uint32_t master = 3;
  message.put(IFLA_MASTER, &master, sizeof(master));
  rtattr* info = message.put(IFLA_LINKINFO, nullptr, 0);
  if (kind != nullptr) message.put(IFLA_INFO_KIND, kind, std::strlen(kind) + 1);
  if (port_kind != nullptr) message.put(IFLA_INFO_SLAVE_KIND, port_kind, std::strlen(port_kind) + 1);
  message.close(info);
  return parse(message);
}

TEST(LinkMaster, WhatIsInAVrfIsUsable) {
  EXPECT_TRUE(with_master("vrf")->usable);
  EXPECT_TRUE(with_master("vrf")->netdev.in_vrf);
  EXPECT_TRUE(with_master("vrf", "veth")->usable);
  for (const char* kind : {"bridge", "bond", "team", "vrf2", static_cast<const char*>(nullptr)}) {
    EXPECT_FALSE(with_master(kind)->usable);
    EXPECT_FALSE(with_master(kind)->netdev.in_vrf);
  }
}

TEST(LinkMaster, AVrfIsNoNetdevToSendFrom) {
  LinkMessage message = with_mac(ARPHRD_ETHER);
  rtattr* info = message.put(IFLA_LINKINFO, nullptr, 0);
  message.put(IFLA_INFO_KIND, "vrf", 4);
  message.close(info);
  EXPECT_FALSE(parse(message)->usable);
}

TEST(DeviceGuid, OfAMacAddressElseOfAnAddressElseOfTheName) {
  Netdev ethernet;
  ethernet.mac = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  EXPECT_EQ(device_guid(ethernet), 0x001122fffe334455u);
  Netdev tunnel;
  tunnel.type = LinkType::kIp;
  tunnel.name = "wg0";
  Netdev other = tunnel;
  EXPECT_EQ(device_guid(tunnel), device_guid(other));
  other.name = "wg1";
  EXPECT_NE(device_guid(tunnel), device_guid(other));
  other = tunnel;
  tunnel.addresses = {ip("10.0.0.1")};
  other.addresses = {ip("10.0.0.2")};
  EXPECT_NE(device_guid(tunnel), device_guid(other)) << "two ends of a tunnel";
  for (const Netdev& netdev : {tunnel, other}) EXPECT_EQ(device_guid(netdev) >> 56 & 3, 0u);
}

class LoopbackTest : public NetViewTest {
 protected:
  void open_both() {
    run("ip addr add 192.0.2.1/24 dev va0; ip addr add 198.51.100.1/32 dev lo; ip tuntap add dev tun0 mode tun");
    open(2);
  }
  std::optional<Route> from_lo(const char* source, const char* destination) {
    return view_->route(kLoopback, ip(source), ip(destination));
  }
  static constexpr int kLoopback = 1;  // ifindex of `lo` in each network namespace
};

TEST_F(LoopbackTest, IsANetdev) {
  open_both();
  const auto lo = view_->netdev(kLoopback);
  ASSERT_TRUE(lo);
  EXPECT_EQ(lo->name, "lo");
  EXPECT_EQ(lo->type, LinkType::kLoopback);
  EXPECT_TRUE(lo->running);
  EXPECT_THAT(lo->addresses, ElementsAre(ip("127.0.0.1"), ip("198.51.100.1"), ip("::1")));
}

// And nothing else reaches its addresses.
TEST_F(LoopbackTest, ReachesItsOwnAddressesOnly) {
  open_both();
  for (const auto& [source, destination] :
       {std::pair{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"198.51.100.1", "127.0.0.1"}}) {
    const auto route = from_lo(source, destination);
    ASSERT_TRUE(route) << destination;
    EXPECT_TRUE(route->local);
  }
  for (const char* destination : {"192.0.2.1", "192.0.2.9", "127.0.0.2", "239.1.2.3"}) {
    EXPECT_EQ(from_lo("127.0.0.1", destination), std::nullopt) << destination;
  }
  for (const char* destination : {"127.0.0.1", "198.51.100.1"}) {
    EXPECT_EQ(view_->route(index_, ip("192.0.2.1"), ip(destination)), std::nullopt) << destination;
  }
  EXPECT_EQ(view_->route(index_, {}, ip("::1")), std::nullopt);
}

TEST_F(LoopbackTest, TheConnectionManagerKeepsItApart) {
  open_both();
  HostNet host(*view_);
  const auto ethernet = static_cast<uint32_t>(index_);
  EXPECT_EQ(host.netdev_with(ip("127.0.0.1"), kLoopback), uint32_t{kLoopback});
  EXPECT_EQ(host.netdev_with(ip("127.0.0.1"), ethernet), std::nullopt);
  EXPECT_EQ(host.netdev_with(ip("192.0.2.1"), kLoopback), std::nullopt);
  EXPECT_TRUE(host.reaches(kLoopback, ip("127.0.0.1"), ip("127.0.0.1")));
  EXPECT_FALSE(host.reaches(kLoopback, ip("127.0.0.1"), ip("192.0.2.1")));
  EXPECT_FALSE(host.reaches(ethernet, ip("192.0.2.1"), ip("127.0.0.1")));
}

TEST_F(LoopbackTest, NobodyHasToBeAskedForAMacAddressWhereThereIsNone) {
  run("ip tuntap add dev tun0 mode tun; ip addr add 10.0.0.1/24 dev tun0; ip link set tun0 up");
  open(1);
  const auto all = view_->netdevs();
  const auto tun = std::find_if(all.begin(), all.end(), [](const Netdev& netdev) { return netdev.name == "tun0"; });
  ASSERT_NE(tun, all.end());
  EXPECT_EQ(tun->type, LinkType::kIp);
  const auto route = view_->route(tun->index, ip("10.0.0.1"), ip("10.0.0.9"));
  ASSERT_TRUE(route);
  EXPECT_FALSE(route->local);
  EXPECT_EQ(view_->next_hop(tun->index, route->next_hop)->neighbour().state, NeighbourState::kUsable);
  EXPECT_EQ(view_->neighbour(tun->index, route->next_hop).state, NeighbourState::kUsable);
}

}  // namespace
}  // namespace uroce::net

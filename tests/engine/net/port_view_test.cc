// SPDX-License-Identifier: BSD-2-Clause
// The file with a port's addresses, and the network that follows from it.
#include "engine/net/port_view.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <utility>

namespace uroce::net {
namespace {

constexpr const char* kGood =
    "# a port\nname dpdk0\nmac 02:00:00:00:00:0a  # its own\n\n\taddress 192.0.2.1/24\r\naddress 2001:db8::1/64\n"
    "gateway 192.0.2.254\nmtu 4200\n";

PortFile good(const std::string& more = "") {
  return std::get<PortFile>(parse_port_file(kGood + more));
}

wire::IpAddress address(const std::string& text) {
  return std::get<PortFile>(parse_port_file("name x\nmac 02:00:00:00:00:01\naddress " + text + "/1\n"))
      .addresses[0]
      .address;
}

TEST(PortFile, IsANetdev) {
  const Netdev netdev = netdev_of(good("address fe80::a/64\naddress 10.0.0.1/8"));
  EXPECT_EQ(netdev.name, "dpdk0");
  EXPECT_EQ(netdev.mac, (wire::MacAddress{2, 0, 0, 0, 0, 10}));
  EXPECT_EQ(netdev.mtu, 4200u);
  EXPECT_TRUE(netdev.up && netdev.running);
  EXPECT_THAT(netdev.gids, testing::ElementsAre(address("192.0.2.1"), address("10.0.0.1"), address("2001:db8::1"),
                                                address("fe80::a")));
}

TEST(PortFile, WhatIsWrongIsSaidWithItsLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "there is no name"},
      {"name x\n", "there is no mac"},
      {"name x\nmac 02:00:00:00:00:01\n", "there is no address"},
      {"name\n", "line 1: a line is a word"},
      {"\nname a b\n", "line 2: a line is a word"},
      {"names x\n", "line 1: words are"},
      {"name ../x\n", "line 1: a name has"},
      {"name 1234567890123456\n", "line 1: a name has"},
      {"mac 02:00:00:00:00\n", "line 1: a MAC"},
      {"mac 02:00:00:00:00:0g\n", "line 1: a MAC"},
      {"mac 02-00-00-00-00-01\n", "line 1: a MAC"},
      {"mac 01:00:00:00:00:01\n", "line 1: a MAC"},
      {"mac 00:00:00:00:00:00\n", "line 1: a MAC"},
      {"mtu 100\n", "line 1: an MTU"},
      {"mtu 9001\n", "line 1: an MTU"},
      {"mtu 1500x\n", "line 1: an MTU"},
      {"vlan 0\n", "line 1: the ID of a VLAN"},
      {"vlan 4095\n", "line 1: the ID of a VLAN"},
      {"address 192.0.2.1\n", "line 1: an address"},
      {"address 192.0.2.1/33\n", "line 1: an address"},
      {"address 192.0.2.1/0\n", "line 1: an address"},
      {"address 192.0.2/24\n", "line 1: an address"},
      {"address ::/64\n", "line 1: an address"},
      {"address 239.0.0.1/8\n", "line 1: an address"},
      {"address ff02::1/64\n", "line 1: an address"},
      {"address 0.0.0.0/8\n", "line 1: an address"},
      {"gateway x\n", "line 1: the address of a gateway"},
      {"gateway 255.255.255.255\n", "line 1: the address of a gateway"},
  };
  for (const auto& [text, problem] : cases) {
    const auto result = parse_port_file(text);
    ASSERT_TRUE(std::holds_alternative<std::string>(result)) << text;
    EXPECT_THAT(std::get<std::string>(result), testing::HasSubstr(problem)) << text;
  }
  std::string many;
  for (size_t i = 0; i <= PortFile::kMostAddresses; ++i) many += "address 10.0.0." + std::to_string(i + 1) + "/24\n";
  EXPECT_EQ(std::get<std::string>(parse_port_file(many)), "line 17: 16 addresses at most");
  EXPECT_EQ(std::get<std::string>(read_port_file("/nosuch")), "/nosuch: cannot be read");
  EXPECT_EQ(std::get<std::string>(read_port_file("/dev/zero")), "/dev/zero: too long");
}

struct PortViewTest : testing::Test {
  PortView view{good()};
  int index = view.netdevs().at(0).index;

  std::string next_hop_to(const char* to, const char* from = nullptr) {
    const auto route = view.route(index, from == nullptr ? wire::IpAddress() : address(from), address(to));
    return route ? route->next_hop.text() : "none";
  }
};

TEST_F(PortViewTest, RoutesFollowFromAddressesAndGateways) {
  EXPECT_EQ(next_hop_to("192.0.2.7", "192.0.2.1"), "192.0.2.7");
  EXPECT_EQ(next_hop_to("198.51.100.1"), "192.0.2.254");
  EXPECT_EQ(next_hop_to("2001:db8::7"), "2001:db8::7");
  EXPECT_EQ(next_hop_to("2001:db9::7"), "none");
  EXPECT_EQ(next_hop_to("fe80::7"), "fe80::7");
  EXPECT_EQ(next_hop_to("192.0.2.7", "192.0.2.9"), "none") << "a source that it does not have";
  EXPECT_TRUE(view.route(index, {}, address("192.0.2.1"))->local);
  EXPECT_EQ(view.route(index, {}, address("192.0.2.7"))->mtu, 4200u);
  EXPECT_FALSE(view.route(index + 1, {}, address("192.0.2.7")));
  EXPECT_EQ(view.departure(address("198.51.100.1"))->source.text(), "192.0.2.1");
  EXPECT_FALSE(view.departure(address("2001:db9::7")));
}

TEST_F(PortViewTest, ANeighbourThatAnswersIsTold) {
  PortView peer(std::get<PortFile>(parse_port_file("name p\nmac 02:00:00:00:00:0b\naddress 192.0.2.2/24\n")));
  std::vector<News> told;
  view.add_listener(this, [&](const News& news) { told.push_back(news); });
  const auto hop = view.next_hop(index, address("192.0.2.2"));
  EXPECT_EQ(hop, view.next_hop(index, address("192.0.2.2")));
  EXPECT_FALSE(hop->neighbour().has_mac());
  hop->await();
  view.resolve_neighbour(index, hop->address);
  std::array<uint8_t, Resolution::kLongestFrame> frame;
  const auto carry = [&](PortView& from, PortView& to) {
    size_t count = 0;
    while (const size_t size = from.next_frame(frame)) {
      to.take_frame(std::span(frame).first(size));
      ++count;
    }
    return count;
  };
  EXPECT_EQ(carry(view, peer), 1u);
  EXPECT_EQ(carry(peer, view), 1u);
  pollfd descriptor{view.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&descriptor, 1, 0), 1) << "there is a deadline";
  EXPECT_FALSE(view.process_changes()) << "it has been told";
  EXPECT_EQ(hop->neighbour(), (Neighbour{NeighbourState::kUsable, {2, 0, 0, 0, 0, 11}}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[0].next_hops);
  EXPECT_FALSE(told[1]) << "there is a deadline, of which he hears who does not call this";
  EXPECT_EQ(poll(&descriptor, 1, 0), 0);
  EXPECT_FALSE(view.process_changes());
  view.remove_listener(this);
}

TEST_F(PortViewTest, GroupsNeedNotBeFound) {
  const uint8_t bytes[4] = {239, 1, 2, 3};
  const auto hop = view.next_hop(index, wire::IpAddress::v4(bytes));
  EXPECT_EQ(hop->neighbour(), (Neighbour{NeighbourState::kUsable, {1, 0, 0x5e, 1, 2, 3}}));
  view.resolve_neighbour(index, hop->address);
  std::array<uint8_t, Resolution::kLongestFrame> frame;
  EXPECT_EQ(view.next_frame(frame), 0u);
}

// A virtual machine that has moved finds its link down and up again.
TEST_F(PortViewTest, AddressesAreAnnouncedWheneverTheLinkComes) {
  std::array<uint8_t, Resolution::kLongestFrame> frame;
  const auto frames = [&] {
    size_t count = 0;
    while (view.next_frame(frame) != 0) ++count;
    return count;
  };
  EXPECT_EQ(frames(), 0u);
  view.set_link(true);
  EXPECT_EQ(frames(), 2u) << "IPv4 and IPv6";
  EXPECT_NE(view.due(), kNever) << "again in a moment";
  view.set_link(true);
  EXPECT_EQ(frames(), 0u);
  view.set_link(false);
  EXPECT_EQ(frames(), 0u);
  view.set_link(true);
  EXPECT_EQ(frames(), 2u);
}

TEST_F(PortViewTest, ALinkThatGoesIsTold) {
  const uint64_t before = view.generation();
  view.set_link(false);
  EXPECT_TRUE(view.process_changes());
  EXPECT_FALSE(view.netdev(index)->running);
  EXPECT_GT(view.generation(), before);
  EXPECT_FALSE(view.process_changes());
  view.set_link(true);
  EXPECT_TRUE(view.process_changes());
  EXPECT_TRUE(view.netdevs()[0].running);
}

}  // namespace
}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
// VLAN netdevs: which VLAN one is, and which ones stand above a netdev.
#include <cstring>
#include <gmock/gmock.h>
#include <linux/if_link.h>
#include <optional>
#include <string>
#include <vector>

#include "engine/net/rtnetlink.h"
#include "tests/engine/net/altered_socket.h"
#include "tests/engine/net/link_message.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::optional<uint16_t> vlan_of(const char* kind, uint16_t id, size_t id_length = sizeof(uint16_t)) {
  LinkMessage message;
  rtattr* info = message.put(IFLA_LINKINFO, nullptr, 0);
  message.put(IFLA_INFO_KIND, kind, std::strlen(kind) + 1);
  rtattr* data = message.put(IFLA_INFO_DATA, nullptr, 0);
  message.put(IFLA_VLAN_ID, &id, id_length);
  message.close(data);
  message.close(info);
  const auto link = rtnetlink::parse_link(*message.header());
  EXPECT_TRUE(link);
  return link ? link->netdev.vlan_id : std::nullopt;
}

TEST(NetLinkMessage, KnowsTheVlanOfANetdev) {
  EXPECT_EQ(rtnetlink::parse_link(*LinkMessage().header())->netdev.vlan_id, std::nullopt);
  EXPECT_EQ(vlan_of("vlan", 42), 42);
  EXPECT_EQ(vlan_of("vlan", 4094), 4094);
  EXPECT_EQ(vlan_of("vxlan", 42), std::nullopt) << "its attribute 1 is something else";
  EXPECT_EQ(vlan_of("vlan", 42, 1), std::nullopt);
}

// A netdev above netdev `lower`.
LinkMessage above(int lower, int index, const std::string& name, const char* kind = "vlan") {
  LinkMessage message(index, name);
  message.put(IFLA_LINK, &lower, sizeof(lower));
  rtattr* info = message.put(IFLA_LINKINFO, nullptr, 0);
  message.put(IFLA_INFO_KIND, kind, std::strlen(kind) + 1);
  message.close(info);
  return message;
}

TEST(NetLinkMessage, KnowsTheNetdevBelowAVlan) {
  const auto lower_of = [](LinkMessage message) { return rtnetlink::parse_link(*message.header())->vlan_lower; };
  EXPECT_EQ(lower_of(LinkMessage()), 0);
  EXPECT_EQ(lower_of(above(3, 9, "eth0.7")), 3);
  EXPECT_EQ(lower_of(above(3, 9, "m0", "macvlan")), 0);
  LinkMessage elsewhere = above(3, 9, "far.7");
  const int32_t id = 0;
  elsewhere.put(IFLA_LINK_NETNSID, &id, sizeof(id));
  EXPECT_EQ(lower_of(elsewhere), 0) << "the index is of another namespace";
}

class NetVlanTest : public NetViewTest {
 protected:
  void open_altered() {
    open(1);
    view_ = net::open_altered(alterations_);
    view_->add_listener(this, [this](const News& news) { told_ += news; });
  }
  // The kernel says it. True: listeners hear of netdevs that have changed.
  bool heard(LinkMessage message, int type = RTM_NEWLINK) {
    message.header()->nlmsg_type = static_cast<uint16_t>(type);
    alterations_.news.push_back(message.bytes());
    told_ = {};
    view_->process_changes();
    return told_.netdevs;
  }
  LinkMessage above_va0(int index, const std::string& name) { return above(index_, index, name); }

  Alterations alterations_;
  News told_;
};

TEST_F(NetVlanTest, ComeAndGo) {
  open_altered();
  EXPECT_THAT(va0().vlans, IsEmpty());
  EXPECT_TRUE(heard(above_va0(901, "va0.7")));
  EXPECT_THAT(va0().vlans, ElementsAre("va0.7"));
  EXPECT_TRUE(heard(above_va0(902, "va0.9")));
  EXPECT_THAT(va0().vlans, ElementsAre("va0.7", "va0.9"));
  EXPECT_TRUE(heard(above_va0(901, "office")));
  EXPECT_THAT(va0().vlans, ElementsAre("office", "va0.9"));
  EXPECT_TRUE(heard(above_va0(901, "office"), RTM_DELLINK));
  EXPECT_THAT(va0().vlans, ElementsAre("va0.9"));
  heard(above(index_ + 1, 903, "other.7"));
  EXPECT_THAT(va0().vlans, ElementsAre("va0.9"));
  run("ip link set va0 mtu 2000");  // what the netdev itself says does not name them
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().vlans, ElementsAre("va0.9"));
}

// One that is in a bridge is no netdev of use to us; it stands above all the same.
TEST_F(NetVlanTest, InABridge) {
  open_altered();
  LinkMessage port = above_va0(901, "va0.7");
  const int bridge = 77;
  port.put(IFLA_MASTER, &bridge, sizeof(bridge));
  EXPECT_TRUE(heard(port));
  EXPECT_THAT(va0().vlans, ElementsAre("va0.7"));
  EXPECT_EQ(view_->netdev(901), std::nullopt);
}

// The order of a dump is that of the numbers, and a netdev that comes from another namespace keeps its own.
TEST_F(NetVlanTest, ThereBeforeTheirLowerNetdev) {
  alterations_.more_links = {above_va0(901, "va0.7").bytes(), above_va0(902, "va0.9").bytes()};
  open_altered();
  EXPECT_THAT(va0().vlans, ElementsAre("va0.7", "va0.9"));
}

}  // namespace
}  // namespace uroce::net

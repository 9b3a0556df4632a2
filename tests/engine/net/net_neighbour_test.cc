// SPDX-License-Identifier: BSD-2-Clause
// NetView::neighbour(), next_hop() and resolve_neighbour(): entries of every state, real ARP and ND between two
// namespaces.
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>

#include "engine/net/net_view.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

class NetNeighbourTest : public NetViewTest {
 protected:
  void SetUp() override {
    NetViewTest::SetUp();
    if (IsSkipped()) return;
    run("ip addr add 192.0.2.1/24 dev va0; ip addr add 2001:db8::1/64 dev va0 nodad");
    run_at_peer("ip addr add 192.0.2.2/24 dev vb0; ip addr add 2001:db8::2/64 dev vb0 nodad");
    open(3);
  }

  Neighbour neighbour(const std::string& address) { return view_->neighbour(index_, ip(address)); }
  NeighbourState state(const std::string& address) { return neighbour(address).state; }
  std::shared_ptr<NextHop> next_hop(const std::string& address) { return view_->next_hop(index_, ip(address)); }
  bool wait_for(const std::string& address, NeighbourState wanted) {
    return wait_until([&] { return state(address) == wanted; });
  }
};

const Neighbour kPeer{NeighbourState::kUsable, {0x02, 0, 0, 0, 0, 0x0b}};

TEST_F(NetNeighbourTest, StatesOfTheTable) {
  EXPECT_EQ(neighbour("192.0.2.50"), Neighbour{});
  struct {
    const char* nud;
    Neighbour expected;
  } cases[] = {
      {"permanent", {NeighbourState::kUsable, mac("02:00:00:00:00:55")}},
      {"noarp", {NeighbourState::kUsable, mac("02:00:00:00:00:55")}},
      {"reachable", {NeighbourState::kUsable, mac("02:00:00:00:00:55")}},
      {"stale", {NeighbourState::kStale, mac("02:00:00:00:00:55")}},
      {"delay", {NeighbourState::kStale, mac("02:00:00:00:00:55")}},
  };
  for (const auto& c : cases) {
    for (const char* address : {"192.0.2.50", "2001:db8::50", "fe80::50"}) {
      // A new entry each time: a recently confirmed one goes from delay to reachable by itself.
      run(std::string("ip neigh flush to ") + address + " nud all; ip neigh replace " + address +
          " lladdr 02:00:00:00:00:55 nud " + c.nud + " dev va0");
      EXPECT_EQ(neighbour(address), c.expected) << c.nud << " " << address;
    }
  }
}

TEST_F(NetNeighbourTest, ResolvesByArpAndNeighbourDiscovery) {
  for (const char* address : {"192.0.2.2", "2001:db8::2", "fe80::b"}) {
    EXPECT_EQ(neighbour(address), Neighbour{}) << address;
    view_->resolve_neighbour(index_, ip(address));
    EXPECT_TRUE(wait_for(address, NeighbourState::kUsable)) << address;
    EXPECT_EQ(neighbour(address), kPeer) << address;
  }
}

TEST_F(NetNeighbourTest, StaleEntryIsProbedAgain) {
  for (const char* address : {"192.0.2.2", "2001:db8::2"}) {
    // The kernel waits before it probes, in case a higher layer confirms the neighbour: as short as it can be.
    run("for f in ipv4 ipv6; do echo 1 > /proc/sys/net/$f/neigh/va0/delay_first_probe_time;"
        "echo 50 > /proc/sys/net/$f/neigh/va0/retrans_time_ms; done");
    run(std::string("ip neigh replace ") + address + " lladdr 02:00:00:00:00:0b nud stale dev va0");
    EXPECT_EQ(state(address), NeighbourState::kStale) << address;
    view_->resolve_neighbour(index_, ip(address));
    EXPECT_TRUE(wait_for(address, NeighbourState::kUsable)) << address;
    EXPECT_EQ(neighbour(address), kPeer) << address;
  }
}

TEST_F(NetNeighbourTest, SilentNeighbourFailsAndRecovers) {
  run("for f in ipv4 ipv6; do echo 100 > /proc/sys/net/$f/neigh/va0/retrans_time_ms;"
      "echo 2 > /proc/sys/net/$f/neigh/va0/mcast_solicit; done");
  for (const char* address : {"192.0.2.3", "2001:db8::3"}) {
    EXPECT_EQ(state(address), NeighbourState::kUnknown) << address;
    view_->resolve_neighbour(index_, ip(address));
    EXPECT_EQ(state(address), NeighbourState::kResolving) << address;
    EXPECT_TRUE(wait_for(address, NeighbourState::kFailed)) << address;
    EXPECT_EQ(neighbour(address).mac, wire::MacAddress{}) << address;
  }
  run_at_peer("ip addr add 192.0.2.3/24 dev vb0; ip addr add 2001:db8::3/64 dev vb0 nodad");
  for (const char* address : {"192.0.2.3", "2001:db8::3"}) {
    view_->resolve_neighbour(index_, ip(address));
    EXPECT_TRUE(wait_for(address, NeighbourState::kUsable)) << address;
    EXPECT_EQ(neighbour(address), kPeer) << address;
  }
}

TEST_F(NetNeighbourTest, NextHopFollowsTheTable) {
  run("ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:55 dev va0");
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.50");
  EXPECT_EQ(hop->neighbour(), (Neighbour{NeighbourState::kUsable, mac("02:00:00:00:00:55")}));
  run("ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:56 nud stale dev va0");
  settle();
  EXPECT_EQ(hop->neighbour(), (Neighbour{NeighbourState::kStale, mac("02:00:00:00:00:56")}));
  run("ip neigh del 192.0.2.50 dev va0");
  settle();
  EXPECT_FALSE(hop->neighbour().has_mac());
}

TEST_F(NetNeighbourTest, NextHopIsSharedAndAskedForOnce) {
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.50");
  const uint64_t before = view_->requests();
  EXPECT_EQ(next_hop("192.0.2.50"), hop);
  EXPECT_EQ(view_->requests(), before);
  EXPECT_NE(next_hop("192.0.2.51"), hop);
  EXPECT_EQ(view_->requests(), before + 1);
}

TEST_F(NetNeighbourTest, OnlyWhoWaitsHearsOfNeighbours) {
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.50");
  settle();
  const uint64_t before = view_->generation();
  News heard;
  view_->add_listener(this, [&](const News& news) { heard += news; });
  run("ip neigh replace 192.0.2.51 lladdr 02:00:00:00:00:55 dev va0");  // nobody holds it
  EXPECT_FALSE(settle());
  hop->await();
  run("ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:55 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_TRUE(heard.next_hops);
  EXPECT_FALSE(heard.netdevs || heard.all_routes || !heard.routes.empty());
  heard = {};
  run("ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:56 dev va0");  // nobody waits any more
  EXPECT_FALSE(settle());
  EXPECT_EQ(hop->neighbour().mac, mac("02:00:00:00:00:56"));
  EXPECT_EQ(view_->generation(), before) << "no route has changed";
  view_->remove_listener(this);
}

TEST_F(NetNeighbourTest, AnswerThatOvertakesItsNotificationCounts) {
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.50");
  settle();
  hop->await();
  News heard;
  view_->add_listener(this, [&](const News& news) { heard += news; });
  run("ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:55 dev va0");
  EXPECT_EQ(state("192.0.2.50"), NeighbourState::kUsable);  // another user of the view asks
  EXPECT_TRUE(hop->neighbour().has_mac());
  EXPECT_TRUE(heard.next_hops);
  view_->remove_listener(this);
}

TEST_F(NetNeighbourTest, NextHopsAreReadAnewAfterLostNotifications) {
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.50"), gone = next_hop("2001:db8::50");
  run("ip neigh replace 2001:db8::50 lladdr 02:00:00:00:00:55 dev va0");
  settle();
  ASSERT_TRUE(gone->neighbour().has_mac());
  const int tiny = 1;  // the kernel's minimum
  ASSERT_EQ(setsockopt(view_->descriptor(), SOL_SOCKET, SO_RCVBUF, &tiny, sizeof(tiny)), 0);
  run("for i in 1 2 3 4 5 6 7 8 9; do ip link set va0 mtu 200$i; done;"
      "ip neigh replace 192.0.2.50 lladdr 02:00:00:00:00:55 dev va0; ip neigh del 2001:db8::50 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_EQ(hop->neighbour().mac, mac("02:00:00:00:00:55"));
  EXPECT_FALSE(gone->neighbour().has_mac());
}

TEST_F(NetNeighbourTest, NextHopWithoutArpFollowsTheNetdev) {
  const std::shared_ptr<NextHop> hop = next_hop("192.0.2.60");
  EXPECT_FALSE(hop->neighbour().has_mac());
  run("ip link set va0 arp off");
  EXPECT_TRUE(settle());
  EXPECT_EQ(hop->neighbour(), (Neighbour{NeighbourState::kUsable, mac("02:00:00:00:00:0a")}));
  run("ip link set va0 address 02:00:00:00:00:1a");
  EXPECT_TRUE(settle());
  EXPECT_EQ(hop->neighbour().mac, mac("02:00:00:00:00:1a"));
  run("ip link set va0 arp on");
  EXPECT_TRUE(settle());
  EXPECT_FALSE(hop->neighbour().has_mac());
}

TEST_F(NetNeighbourTest, NetdevWithoutArp) {
  run("ip link set va0 arp off");
  EXPECT_TRUE(settle());
  EXPECT_EQ(neighbour("192.0.2.60"), (Neighbour{NeighbourState::kUsable, mac("02:00:00:00:00:0a")}));
  run("ip neigh replace 192.0.2.60 lladdr 02:00:00:00:00:55 dev va0");
  EXPECT_EQ(neighbour("192.0.2.60"), (Neighbour{NeighbourState::kUsable, mac("02:00:00:00:00:55")}));
  run("ip link set va0 arp on");
  EXPECT_TRUE(settle());
  EXPECT_EQ(neighbour("192.0.2.61"), Neighbour{});
}

TEST_F(NetNeighbourTest, MulticastGroupsHaveFixedMacAddresses) {
  EXPECT_EQ(neighbour("239.129.2.3"), (Neighbour{NeighbourState::kUsable, mac("01:00:5e:01:02:03")}));
  EXPECT_EQ(neighbour("ff0e::1234:5678"), (Neighbour{NeighbourState::kUsable, mac("33:33:12:34:56:78")}));
}

}  // namespace
}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
// NetView and answers of the kernel that are lost, or that the kernel itself calls inconsistent: what was known stays,
// and it is asked again.
#include <algorithm>
#include <chrono>
#include <climits>
#include <gmock/gmock.h>
#include <string>
#include <sys/socket.h>
#include <system_error>

#include "base/clock.h"
#include "tests/engine/net/altered_socket.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kAll = INT_MAX;

class NetAnswersTest : public NetViewTest {
 protected:
  // As open().
  void open_altered(size_t address_count) {
    open(address_count);
    view_ = net::open_altered(alterations_);
    ASSERT_EQ(va0().addresses.size(), address_count);
    view_->add_listener(this, [this](const News& news) {
      told_ += news;
      ++times_told_;
    });
  }
  void lose_notifications() {
    const int tiny = 1;  // the kernel's minimum
    ASSERT_EQ(setsockopt(view_->descriptor(), SOL_SOCKET, SO_RCVBUF, &tiny, sizeof(tiny)), 0);
    run("for i in 1 2 3 4 5 6 7 8 9; do ip link set va0 mtu 200$i; done");
  }

  Alterations alterations_;
  News told_;
  int times_told_ = 0;
};

TEST_F(NetAnswersTest, AddressesStayUntilAllAreRead) {
  run("ip addr add 192.0.2.1/24 dev va0; ip addr add 192.0.2.2/24 dev va0");
  open_altered(3);
  const Netdev before = va0();
  EXPECT_EQ(view_->due(), kNever);

  alterations_.cut_short[RTM_GETADDR] = kAll;
  run("ip addr add 192.0.2.3/24 dev va0");
  for (int i = 0; i < 2; ++i) {
    view_->process_changes();
    EXPECT_EQ(va0(), before);
    EXPECT_FALSE(told_.netdevs);
    EXPECT_NE(view_->due(), kNever) << "nothing announces that it can be read now";
    EXPECT_EQ(times_told_, i + 1) << "who sleeps is not who has called";
  }

  alterations_.cut_short[RTM_GETADDR] = 0;
  EXPECT_TRUE(view_->process_changes());
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("192.0.2.2"), ip("192.0.2.3"), ip("fe80::a")));
  EXPECT_TRUE(told_.netdevs);
  EXPECT_EQ(view_->due(), kNever);
}

TEST_F(NetAnswersTest, NetdevsStayUntilAllAreRead) {
  for (const int type : {RTM_GETLINK, RTM_GETADDR}) {
    run("ip addr flush dev va0; ip addr add 192.0.2.1/24 dev va0; ip link set va0 mtu 1500");
    open_altered(1);
    const Netdev before = va0();
    told_ = {};
    alterations_.cut_short[type] = kAll;
    lose_notifications();
    run("ip link add vc0 type veth peer name vd0; ip addr add 192.0.2.9/24 dev va0");
    view_->process_changes();
    Netdev now = va0();
    now.mtu = before.mtu;  // of the notifications that were not lost
    EXPECT_EQ(now, before);
    EXPECT_FALSE(told_.all_routes);
    EXPECT_NE(view_->due(), kNever);

    alterations_.cut_short[type] = 0;
    EXPECT_TRUE(view_->process_changes());
    EXPECT_EQ(va0().mtu, 2009u);
    EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("192.0.2.9")));
    EXPECT_EQ(view_->netdevs().size(), 4u);
    EXPECT_TRUE(told_.netdevs && told_.all_routes);
    EXPECT_EQ(view_->due(), kNever);
    run("ip link del vc0");
  }
}

TEST_F(NetAnswersTest, NeighboursStayUntilAllAreRead) {
  run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:0b dev va0; ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:0c dev "
      "va0");
  open_altered(1);
  const auto one = view_->next_hop(index_, ip("192.0.2.2")), other = view_->next_hop(index_, ip("192.0.2.3"));
  ASSERT_EQ(one->neighbour().state, NeighbourState::kUsable);
  alterations_.cut_short[RTM_GETNEIGH] = kAll;
  lose_notifications();
  run("ip neigh replace 192.0.2.3 lladdr 02:00:00:00:00:0d dev va0");
  view_->process_changes();
  EXPECT_EQ(one->neighbour().mac, mac("02:00:00:00:00:0b"));
  EXPECT_EQ(other->neighbour().mac, mac("02:00:00:00:00:0c"));
  EXPECT_NE(view_->due(), kNever);
  told_ = {};
  alterations_.cut_short[RTM_GETNEIGH] = 0;
  EXPECT_TRUE(view_->process_changes());
  EXPECT_EQ(other->neighbour().mac, mac("02:00:00:00:00:0d"));
  EXPECT_TRUE(told_.next_hops);
  EXPECT_FALSE(told_.netdevs) << "these had been read";
  EXPECT_EQ(view_->due(), kNever);
}

TEST_F(NetAnswersTest, SeveralAttemptsAreMadeAtOnce) {
  open_altered(1);
  alterations_.cut_short[RTM_GETADDR] = 3;
  run("ip addr add 192.0.2.1/24 dev va0");
  EXPECT_TRUE(view_->process_changes());
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("fe80::a")));
  EXPECT_EQ(view_->due(), kNever);
}

// However long it fails, it is asked a few times per call, and calls are wanted ever less often.
TEST_F(NetAnswersTest, PausesGrowToASecond) {
  open_altered(1);
  alterations_.cut_short[RTM_GETADDR] = kAll;
  run("ip addr add 192.0.2.1/24 dev va0");
  for (int failure = 0; failure < 12; ++failure) {
    alterations_.asked.clear();
    const Time before = monotonic_now();
    view_->process_changes();
    const Time after = monotonic_now();
    const Duration pause = std::min<Duration>(std::chrono::milliseconds(10) * (1 << failure), std::chrono::seconds(1));
    EXPECT_GE(view_->due(), before + pause) << failure;
    EXPECT_LE(view_->due(), after + pause) << failure;
    EXPECT_EQ(alterations_.asked[RTM_GETADDR], 4);
  }
  alterations_.cut_short[RTM_GETADDR] = 0;
  EXPECT_TRUE(view_->process_changes());
  alterations_.cut_short[RTM_GETADDR] = kAll;
  run("ip addr del 192.0.2.1/24 dev va0");
  view_->process_changes();
  EXPECT_LE(view_->due(), monotonic_now() + std::chrono::milliseconds(10)) << "as after the first failure";
}

TEST_F(NetAnswersTest, WhatCannotBeReadAtAllIsSaid) {
  for (const int type : {RTM_GETLINK, RTM_GETADDR}) {
    alterations_.cut_short = {{type, kAll}};
    try {
      view_ = net::open_altered(alterations_);
      ADD_FAILURE() << "has opened without knowing what is there";
    } catch (const std::system_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("no whole answer about netdevs and addresses"));
    }
  }
  alterations_.cut_short = {{RTM_GETLINK, 3}, {RTM_GETADDR, 3}};
  view_ = net::open_altered(alterations_);
  EXPECT_EQ(va0().addresses.size(), 1u);
}

}  // namespace
}  // namespace uroce::net

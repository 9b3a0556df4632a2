// SPDX-License-Identifier: BSD-2-Clause
// NetView: netdevs and their addresses are listed and followed.
#include "engine/net/net_view.h"

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names(const std::vector<Netdev>& netdevs) {
  std::vector<std::string> result;
  result.reserve(netdevs.size());
  for (const Netdev& netdev : netdevs) result.push_back(netdev.name);
  return result;
}

TEST_F(NetViewTest, ListsUsableNetdevsOnly) {
  run("ip link add br0 type bridge; ip link add vc0 type veth peer name vd0; ip link set vc0 master br0;"
      "ip tuntap add dev tun0 mode tun");
  open(1);
  // Not the bridge port vc0. The kernel numbers a veth pair's peer first.
  EXPECT_THAT(names(view_->netdevs()), ElementsAre("lo", "va0", "br0", "vd0", "tun0"));
}

TEST_F(NetViewTest, DescribesANetdev) {
  run("ip addr add 192.0.2.1/24 dev va0; ip link set va0 mtu 4200");
  open(2);
  Netdev expected;
  expected.index = index_;
  expected.name = "va0";
  expected.mac = mac("02:00:00:00:00:0a");
  expected.mtu = 4200;
  expected.up = expected.running = true;
  expected.speed_mbps = 10000;
  expected.kind = "veth";
  expected.gso_max_size = 65536;
  expected.addresses = expected.gids = {ip("192.0.2.1"), ip("fe80::a")};
  EXPECT_EQ(view_->netdev(index_), expected);
  EXPECT_EQ(view_->netdevs().back(), expected);
  EXPECT_EQ(view_->netdev(index_ + 100), std::nullopt);
}

TEST_F(NetViewTest, TellsItsListeners) {
  open(1);
  int one = 0, two = 0;
  view_->add_listener(&one, [&one](const News& news) { one += news.netdevs; });
  view_->add_listener(&two, [&two](const News& news) { two += news.netdevs; });
  run("ip addr add 192.0.2.1/24 dev va0");
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 2; }));
  EXPECT_GT(one, 0);
  EXPECT_EQ(one, two);
  view_->remove_listener(&two);
  const int before = two;
  run("ip addr add 192.0.2.2/24 dev va0");
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 3; }));
  EXPECT_EQ(two, before);
  EXPECT_GT(one, before);
}

TEST_F(NetViewTest, AddressesAreInGidTableOrder) {
  run("ip addr add 2001:db8::1/64 dev va0 nodad; ip addr add 192.0.2.1/24 dev va0; ip addr add 192.0.2.2/24 dev va0;"
      "ip addr add fd00::1/64 dev va0 nodad; ip addr add 198.51.100.1 peer 198.51.100.2 dev va0");
  open(6);
  // IPv4 in the kernel's order (primary before secondary), global IPv6 (latest first), link-local; of the
  // point-to-point address our end.
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("198.51.100.1"), ip("192.0.2.2"), ip("fd00::1"),
                                           ip("2001:db8::1"), ip("fe80::a")));
}

TEST_F(NetViewTest, AddressWithTwoPrefixLengthsIsOneGid) {
  run("ip addr add 192.0.2.1/24 dev va0; ip addr add 192.0.2.1/16 dev va0");
  open(2);
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("fe80::a")));
}

TEST_F(NetViewTest, FollowsAddressesInOrder) {
  open(1);
  run("ip addr add 2001:db8::1/64 dev va0 nodad");
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 2; }));
  EXPECT_THAT(va0().addresses, ElementsAre(ip("2001:db8::1"), ip("fe80::a")));
  run("ip addr add 192.0.2.1/24 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("2001:db8::1"), ip("fe80::a")));
  run("ip addr del 2001:db8::1/64 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("fe80::a")));
  run("ip addr flush dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().addresses, IsEmpty());
}

TEST_F(NetViewTest, PlacesInTheGidTableStay) {
  run("ip addr add 192.0.2.1/24 dev va0; ip addr add 192.0.2.2/24 dev va0");
  open(3);
  const wire::IpAddress empty;
  ASSERT_THAT(va0().gids, ElementsAre(ip("192.0.2.1"), ip("192.0.2.2"), ip("fe80::a")));
  run("ip addr add 198.51.100.1/24 dev va0; ip addr del 192.0.2.2/24 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().addresses, ElementsAre(ip("192.0.2.1"), ip("198.51.100.1"), ip("fe80::a")));
  EXPECT_THAT(va0().gids, ElementsAre(ip("192.0.2.1"), ip("198.51.100.1"), ip("fe80::a")));
  run("ip addr del 192.0.2.1/24 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().gids, ElementsAre(empty, ip("198.51.100.1"), ip("fe80::a")));
  run("ip addr add 2001:db8::1/64 dev va0 nodad");
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 3; }));
  EXPECT_THAT(va0().gids, ElementsAre(ip("2001:db8::1"), ip("198.51.100.1"), ip("fe80::a")));
  const int tiny = 1;  // notifications are lost: places stay all the same
  ASSERT_EQ(setsockopt(view_->descriptor(), SOL_SOCKET, SO_RCVBUF, &tiny, sizeof(tiny)), 0);
  run("for i in 1 2 3 4 5 6 7 8 9; do ip link set va0 mtu 200$i; done; ip addr del 198.51.100.1/24 dev va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(va0().gids, ElementsAre(ip("2001:db8::1"), empty, ip("fe80::a")));
}

TEST_F(NetViewTest, TentativeAddressComesAfterDuplicateAddressDetection) {
  open(1);
  run("echo 1 > /proc/sys/net/ipv6/conf/va0/accept_dad; ip addr add 2001:db8::1/64 dev va0");
  settle();
  EXPECT_THAT(va0().addresses, ElementsAre(ip("fe80::a")));
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 2; }));
  EXPECT_THAT(va0().addresses, ElementsAre(ip("2001:db8::1"), ip("fe80::a")));
}

TEST_F(NetViewTest, DuplicateAddressNeverAppears) {
  run_at_peer("ip addr add 2001:db8::1/64 dev vb0 nodad");
  open(1);
  // The second address is fine, and its detection shows that the first one's has ended too.
  run("echo 1 > /proc/sys/net/ipv6/conf/va0/accept_dad; ip addr add 2001:db8::1/64 dev va0;"
      "ip addr add 2001:db8::2/64 dev va0; while ip -6 addr show tentative -dadfailed | grep -q .; do :; done");
  EXPECT_TRUE(wait_until([&] { return va0().addresses.size() == 2; }));
  EXPECT_THAT(va0().addresses, ElementsAre(ip("2001:db8::2"), ip("fe80::a")));
}

TEST_F(NetViewTest, DeprecatedAddressStays) {
  open(1);
  run("ip addr add 2001:db8::1/64 dev va0 nodad preferred_lft 0");
  EXPECT_TRUE(wait_until([this] { return va0().addresses.size() == 2; }));
  EXPECT_THAT(va0().addresses, ElementsAre(ip("2001:db8::1"), ip("fe80::a")));
}

TEST_F(NetViewTest, FollowsMtuMacAndName) {
  open(1);
  const uint64_t before = view_->generation();
  run("ip link set va0 mtu 9000");
  EXPECT_TRUE(settle());
  EXPECT_EQ(va0().mtu, 9000u);
  EXPECT_GT(view_->generation(), before);
  run("ip link set va0 address 02:00:00:00:00:1a");
  EXPECT_TRUE(settle());
  EXPECT_EQ(va0().mac, mac("02:00:00:00:00:1a"));
  run("ip link set va0 down; ip link set va0 name renamed0");
  EXPECT_TRUE(settle());
  EXPECT_EQ(va0().name, "renamed0");
}

// A change of it alone is not announced.
TEST_F(NetViewTest, KnowsHowLongFramesMayBe) {
  run("ip link set va0 gso_max_size 20000");
  open(1);
  EXPECT_EQ(va0().gso_max_size, 20000u);
}

TEST_F(NetViewTest, FollowsLinkState) {
  open(1);
  run_at_peer("ip link set vb0 down");  // the cable is out
  EXPECT_TRUE(wait_until([this] { return !va0().running; }));
  EXPECT_TRUE(va0().up);
  run_at_peer("ip link set vb0 up");
  EXPECT_TRUE(wait_until([this] { return va0().running; }));
  EXPECT_EQ(va0().speed_mbps, 10000u);
  run("ip link set va0 down");
  EXPECT_TRUE(settle());
  EXPECT_FALSE(va0().up);
  EXPECT_FALSE(va0().running);
}

TEST_F(NetViewTest, NewLinkHasANewSpeed) {
  const int tap = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (tap < 0) GTEST_SKIP() << "needs /dev/net/tun";
  ifreq request{};
  std::strcpy(request.ifr_name, "tap0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  ASSERT_EQ(ioctl(tap, TUNSETIFF, &request), 0);
  run("ethtool -s tap0 speed 10000 duplex full; ip link set tap0 up");
  open(1);
  const int index = static_cast<int>(if_nametoindex("tap0"));
  auto tap0 = [&] { return view_->netdev(index).value_or(Netdev{}); };
  EXPECT_TRUE(wait_until([&] { return tap0().running; }));
  EXPECT_EQ(tap0().speed_mbps, 10000u);
  int carrier = 0;
  ASSERT_EQ(ioctl(tap, TUNSETCARRIER, &carrier), 0);
  EXPECT_TRUE(wait_until([&] { return !tap0().running; }));
  run("ethtool -s tap0 speed 25000 duplex full");  // another transceiver
  carrier = 1;
  ASSERT_EQ(ioctl(tap, TUNSETCARRIER, &carrier), 0);
  EXPECT_TRUE(wait_until([&] { return tap0().running; }));
  EXPECT_EQ(tap0().speed_mbps, 25000u);
  close(tap);
}

TEST_F(NetViewTest, FollowsAddedEnslavedAndDeletedNetdevs) {
  open(1);
  run("ip link add vc0 type veth peer name vd0; ip addr add 192.0.2.5/24 dev vc0; ip link add br0 type bridge");
  EXPECT_TRUE(settle());
  EXPECT_THAT(names(view_->netdevs()), ElementsAre("lo", "va0", "vd0", "vc0", "br0"));
  run("ip link set vc0 master br0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(names(view_->netdevs()), ElementsAre("lo", "va0", "vd0", "br0"));
  run("ip link set vc0 nomaster");
  EXPECT_TRUE(settle());
  ASSERT_THAT(names(view_->netdevs()), ElementsAre("lo", "va0", "vd0", "vc0", "br0"));
  EXPECT_THAT(view_->netdevs()[3].addresses, ElementsAre(ip("192.0.2.5")));
  run("ip link del vc0; ip link del va0");
  EXPECT_TRUE(settle());
  EXPECT_THAT(names(view_->netdevs()), ElementsAre("lo", "br0"));
  EXPECT_EQ(view_->netdev(index_), std::nullopt);
  EXPECT_EQ(view_->route(index_, {}, ip("192.0.2.9")), std::nullopt);
  EXPECT_EQ(view_->neighbour(index_, ip("192.0.2.9")).state, NeighbourState::kUnknown);
}

TEST_F(NetViewTest, DescriptorTellsOfChangesAndGoesQuiet) {
  open(1);
  settle();
  pollfd readable{view_->descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 0), 0);
  run("ip link set va0 mtu 2000");
  EXPECT_EQ(poll(&readable, 1, 0), 1);
  const uint64_t before = view_->generation();
  EXPECT_TRUE(view_->process_changes());
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  EXPECT_GT(view_->generation(), before);
  const uint64_t after = view_->generation();
  EXPECT_FALSE(view_->process_changes());
  EXPECT_EQ(view_->generation(), after);
}

TEST_F(NetViewTest, LostNotificationsLeadToACompleteReread) {
  open(1);
  const int tiny = 1;  // the kernel's minimum
  ASSERT_EQ(setsockopt(view_->descriptor(), SOL_SOCKET, SO_RCVBUF, &tiny, sizeof(tiny)), 0);
  run("for i in 1 2 3 4 5 6 7 8 9; do ip link set va0 mtu 200$i; ip addr add 192.0.2.$i/24 dev va0; done;"
      "ip link add vc0 type veth peer name vd0; ip addr del 192.0.2.1/24 dev va0; ip link set va0 mtu 3000");
  EXPECT_TRUE(settle());
  EXPECT_EQ(va0().mtu, 3000u);
  EXPECT_EQ(names(view_->netdevs()).size(), 4u);
  std::vector<Netdev> anew = NetView::open()->netdevs(), followed = view_->netdevs();
  for (std::vector<Netdev>* all : {&anew, &followed}) {
    for (Netdev& netdev : *all) netdev.gids.clear();  // their places tell of the past
  }
  EXPECT_EQ(anew, followed);
  run("ip link set va0 mtu 1400");  // and notifications work as before
  EXPECT_TRUE(settle());
  EXPECT_EQ(va0().mtu, 1400u);
}

TEST_F(NetViewTest, UnprivilegedProcessReadsAndResolves) {
  run("ip addr add 192.0.2.1/24 dev va0; ip addr add 2001:db8::1/64 dev va0 nodad");
  run_at_peer("ip addr add 192.0.2.2/24 dev vb0; ip addr add 2001:db8::2/64 dev vb0 nodad");
  open(3);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the exit status tells the first step that failed
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(1);
    view_ = NetView::open();
    if (va0().addresses.size() != 3 || va0().speed_mbps != 10000) _exit(2);
    if (!view_->route(index_, ip("192.0.2.1"), ip("192.0.2.2"))) _exit(3);
    int step = 4;
    for (const char* address : {"192.0.2.2", "2001:db8::2", "fe80::b"}) {
      auto is_usable = [&] { return view_->neighbour(index_, ip(address)).state == NeighbourState::kUsable; };
      if (is_usable()) _exit(step);
      view_->resolve_neighbour(index_, ip(address));
      if (!wait_until(is_usable)) _exit(step + 1);
      step += 2;
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NetViewTest, ThreadsReadWhileTheConfigurationChanges) {
  run("ip addr add 192.0.2.1/24 dev va0; ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:0b dev va0");
  open(2);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  auto read = [&] {
    while (!stop) {
      view_->process_changes();
      auto route = view_->route(index_, ip("192.0.2.1"), ip("192.0.2.2"));
      if (!route || route->next_hop != ip("192.0.2.2")) ++wrong;
      if (view_->neighbour(index_, ip("192.0.2.2")).mac != mac("02:00:00:00:00:0b")) ++wrong;
      if (view_->netdevs().empty()) ++wrong;
    }
  };
  std::vector<std::thread> readers;
  constexpr int kReaders = 3;
  readers.reserve(kReaders);
  for (int i = 0; i < kReaders; ++i) readers.emplace_back(read);
  run("for i in 1 2 3 4 5 6 7 8 9; do ip link set va0 mtu 200$i; ip addr add 198.51.100.$i/24 dev va0; done");
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  settle();
  EXPECT_EQ(va0().mtu, 2009u);
  EXPECT_EQ(va0().addresses.size(), 11u);
}

}  // namespace
}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
// What is asked of the kernel about one netdev.
#include "cli/netdev_probe.h"

#include <arpa/inet.h>
#include <cerrno>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/unique_fd.h"
#include "engine/io/udp/socket.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::cli {
namespace {

using io::test::VethPair;

int obstacle_code(const std::string& netdev) {
  const std::optional<io::IoError> error = udp_obstacle(netdev);
  return error ? error->code : 0;
}

TEST(UdpObstacle, IsWhoHasThePortOnThisNetdev) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  VethPair::enter(veth.a());
  for (const int family : {AF_INET, AF_INET6}) {
    io::UdpSocket holder;
    ASSERT_FALSE(holder.open(family, "va"));
    EXPECT_EQ(obstacle_code("va"), EADDRINUSE);
    EXPECT_EQ(obstacle_code("lo"), 0);
  }
  EXPECT_EQ(obstacle_code("va"), 0);
  EXPECT_EQ(obstacle_code("nosuchdev"), ENODEV);
}

TEST(NetdevProbe, KnowsWhoElseIsInItsSubnet) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  VethPair::enter(veth.a());
  VethPair::run(veth.a(),
                "ip address add 10.1.0.1/24 dev va; ip link add near type veth peer name far; ip link set near up;"
                "ip link set far up; ip address add 10.1.7.1/16 dev near; ip address add 10.2.0.1/24 dev far;"
                "ip address add 10.1.0.9/32 dev lo; sysctl -qw net.ipv4.conf.va.arp_ignore=2");
  EXPECT_EQ(probe_netdev("va").same_subnet, std::vector<std::string>{"near"});
  EXPECT_EQ(probe_netdev("near").same_subnet, std::vector<std::string>{"va"});
  EXPECT_EQ(probe_netdev("far").same_subnet, std::vector<std::string>{});
  EXPECT_EQ(probe_netdev("va").arp_ignore, 2);
  EXPECT_EQ(probe_netdev("near").arp_ignore, 0);
}

// Like the kernel's Soft-RoCE.
TEST(UdpObstacle, IsWhoHasThePortOnAllNetdevs) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  VethPair::enter(veth.a());
  const UniqueFd holder(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(4791);
  ASSERT_EQ(bind(holder.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
  EXPECT_EQ(obstacle_code("va"), EADDRINUSE);
  EXPECT_EQ(obstacle_code("lo"), EADDRINUSE);
}

}  // namespace
}  // namespace uroce::cli

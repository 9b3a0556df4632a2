// SPDX-License-Identifier: BSD-2-Clause
// Addresses: bound, resolved, and what becomes of them.
#include "lab.h"

namespace uroce::rdma_cm::test {
namespace {

using abi::EventKind;
using net::NeighbourState;
using wire::PortSpace;

struct Addresses : testing::Test {
  Addresses() { pair.host_a.view().add_netdev(7, {"198.51.100.1"}, 9000); }
  Address source(uint32_t id) {
    abi::QueryAddrAnswer out{};
    EXPECT_EQ(pair.a.query(id, abi::kQueryAddr, out), 0);
    return parse_address(out.src_addr);
  }
  uint32_t netdev(uint32_t id) {
    abi::QueryAddrAnswer out{};
    EXPECT_EQ(pair.a.query(id, abi::kQueryAddr, out), 0);
    return out.ibdev_index;
  }
  Pair pair;
};

TEST_F(Addresses, BoundOnesAreTheHosts) {
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  EXPECT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.77", 0)), EADDRNOTAVAIL);
  EXPECT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 80)), EACCES);
  EXPECT_EQ(pair.a.bind(id, sockaddr_of("fe80::1", 5000)), EINVAL) << "a link-local address without its link";
  EXPECT_EQ(pair.a.bind(id, abi::Storage{}), EINVAL);
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 5000)), 0);
  EXPECT_EQ(netdev(id), 2u);
  const uint32_t second = pair.a.create(PortSpace::kTcp);
  EXPECT_EQ(pair.a.bind(second, sockaddr_of("192.0.2.1", 5000)), EADDRINUSE);
  EXPECT_EQ(pair.a.bind(second, sockaddr_of("0.0.0.0", 5000)), EADDRNOTAVAIL);
  EXPECT_EQ(pair.a.bind(second, sockaddr_of("198.51.100.1", 5000)), 0);
  EXPECT_EQ(pair.a.destroy(id), 0);
  EXPECT_EQ(pair.a.bind(pair.a.create(PortSpace::kTcp), sockaddr_of("192.0.2.1", 5000)), 0);
  EXPECT_EQ(pair.a.bind(pair.a.create(PortSpace::kTcp), sockaddr_of("127.0.0.1", 6000)), 0) << "as a wildcard";
  EXPECT_EQ(pair.a.bind(pair.a.create(PortSpace::kIpoib), sockaddr_of("192.0.2.1", 0)), EINVAL);
}

TEST_F(Addresses, ReuseLastsUntilSomebodyListens) {
  const int on = 1;
  const uint32_t first = pair.a.create(PortSpace::kTcp), second = pair.a.create(PortSpace::kTcp);
  for (const uint32_t id : {first, second}) {
    ASSERT_EQ(pair.a.set_option(id, 0, abi::kOptionReuseAddress, &on, sizeof(on)), 0);
    ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 5000)), 0);
  }
  EXPECT_EQ(pair.a.listen(first), EADDRINUSE);
}

// net.ipv6.bindv6only, which the option AFONLY overrules.
TEST_F(Addresses, TheWildcardOfIpv6TakesIpv4AsTheHostHasIt) {
  const abi::Storage v4 = sockaddr_of("0.0.0.0", 7000), v6 = sockaddr_of("::", 7000);
  const auto both = [&](std::optional<int32_t> af_only) {
    const uint32_t first = pair.a.create(PortSpace::kTcp), second = pair.a.create(PortSpace::kTcp);
    if (af_only) {
      EXPECT_EQ(pair.a.set_option(first, abi::kLevelId, abi::kOptionAfOnly, &*af_only, sizeof(*af_only)), 0);
    }
    EXPECT_EQ(pair.a.bind(first, v6), 0);
    const int error = pair.a.bind(second, v4);
    EXPECT_EQ(pair.a.destroy(first), 0);
    EXPECT_EQ(pair.a.destroy(second), 0);
    return error;
  };
  EXPECT_NE(both(std::nullopt), 0);
  EXPECT_EQ(both(1), 0);
  pair.host_a.set_binds_v6_only(true);
  EXPECT_EQ(both(std::nullopt), 0);
  EXPECT_NE(both(0), 0);
}

TEST_F(Addresses, TheProbeForAfIbIsAnswered) {
  const uint32_t id = pair.a.create(PortSpace::kIb);
  abi::SockaddrIb address{};
  address.sib_family = abi::kFamilyIb;
  address.sib_sid = htobe64(0x01060000);
  address.sib_sid_mask = htobe64(~uint64_t{0xffff});
  abi::Bind body{};
  body.id = id;
  body.addr_size = sizeof(address);
  std::memcpy(body.addr.data(), &address, sizeof(address));
  ASSERT_EQ(pair.a.command(abi::Command::kBind, body), 0);
  abi::QueryAddrAnswer out{};
  EXPECT_EQ(pair.a.query(id, abi::kQueryAddr, out), 0);
  EXPECT_EQ(out.src_size, sizeof(address));
  EXPECT_EQ(pair.a.query(id, abi::kQueryGid, out), 0);
}

TEST_F(Addresses, SourceAndNetdevFollowTheRoute) {
  const uint32_t near = pair.a.create(PortSpace::kTcp), far = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.resolve(near, sockaddr_of("198.51.100.9", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  EXPECT_EQ(source(near).ip, ip("198.51.100.1"));
  EXPECT_EQ(netdev(near), 7u);
  ASSERT_EQ(pair.a.resolve_route(near), 0);
  pair.a.expect(EventKind::kRouteResolved);
  abi::QueryPathAnswer path{};
  ASSERT_EQ(pair.a.query_path(near, path), 0);
  EXPECT_EQ(path.path_data[0].path_rec[54] & 0x3f, 5) << "4096 fits";
  pair.host_a.view().set_gateway("203.0.113.5", 2, "192.0.2.254");
  ASSERT_EQ(pair.a.resolve(far, sockaddr_of("203.0.113.5", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  EXPECT_EQ(source(far).ip, ip("192.0.2.1"));
}

TEST_F(Addresses, NoRouteIsAnErrorAtOnce) {
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  EXPECT_EQ(pair.a.resolve(id, sockaddr_of("203.0.113.5", 1)), ENETUNREACH);
  EXPECT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", 1)), 0) << "and one may try again";
}

TEST_F(Addresses, FamiliesDoNotMix) {
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  const abi::Storage source = sockaddr_of("192.0.2.1", 0);
  EXPECT_EQ(pair.a.resolve(id, sockaddr_of("2001:db8::2", 1), 100, &source), EINVAL);
  EXPECT_EQ(pair.a.resolve(id, abi::Storage{}), EINVAL);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", 1), 100, &source), 0);
}

TEST_F(Addresses, ANextHopIsWaitedFor) {
  pair.host_a.view().set_neighbour("192.0.2.9", NeighbourState::kUnknown);
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.9", 1), 10'000), 0);
  EXPECT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.9", 1)), EINVAL) << "it is at it";
  while (pair.host_a.view().asked("192.0.2.9") == 0) std::this_thread::yield();
  EXPECT_FALSE(pair.a.readable());
  pair.host_a.view().set_neighbour("192.0.2.9", NeighbourState::kUsable);
  pair.a.expect(EventKind::kAddrResolved);
}

TEST_F(Addresses, ANextHopThatNobodyHasIsAnErrorInTime) {
  pair.host_a.view().set_neighbour("192.0.2.9", NeighbourState::kUnknown);
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.9", 1), 50), 0);
  const abi::Event event = pair.a.expect(EventKind::kAddrError);
  EXPECT_EQ(static_cast<int32_t>(event.status), -ETIMEDOUT);
  EXPECT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", 1)), 0) << "callers try again";
  pair.a.expect(EventKind::kAddrResolved);
}

TEST_F(Addresses, OwnAddressesAndLoopback) {
  const uint32_t own = pair.a.create(PortSpace::kTcp), loopback = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.resolve(own, sockaddr_of("198.51.100.1", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  EXPECT_EQ(source(own).ip, ip("198.51.100.1"));
  EXPECT_EQ(netdev(own), 7u);
  ASSERT_EQ(pair.a.resolve(loopback, sockaddr_of("127.0.0.1", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  EXPECT_EQ(pair.a.resolve_route(loopback), ENODEV);
}

TEST_F(Addresses, ListeningOnAnUnboundIdTakesAnyPort) {
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.listen(id, 0), 0);
  EXPECT_GE(source(id).port, 32768);
}

TEST_F(Addresses, ANetdevThatGoes) {
  const uint32_t stays = pair.a.create(PortSpace::kTcp, 1), goes = pair.a.create(PortSpace::kTcp, 2);
  ASSERT_EQ(pair.a.bind(stays, sockaddr_of("192.0.2.1", 0)), 0);
  ASSERT_EQ(pair.a.resolve(goes, sockaddr_of("198.51.100.9", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  pair.host_a.view().remove_netdev(7);
  EXPECT_EQ(pair.a.expect(EventKind::kDeviceRemoval).id, goes);
  EXPECT_FALSE(pair.a.readable(50));
  EXPECT_EQ(pair.a.resolve_route(goes), EINVAL);
  EXPECT_EQ(pair.a.destroy(goes), 0);
}

TEST_F(Addresses, AMacAddressThatChanges) {
  const uint32_t id = pair.a.create(PortSpace::kTcp, 1);
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 0)), 0);
  pair.host_a.view().change_mac(2);
  EXPECT_EQ(pair.a.expect(EventKind::kAddrChange).id, id);
  EXPECT_FALSE(pair.a.readable(50)) << "once";
}

}  // namespace
}  // namespace uroce::rdma_cm::test

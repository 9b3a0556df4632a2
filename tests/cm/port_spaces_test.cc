// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_spaces.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

struct PortSpacesTest : testing::Test {
  std::mt19937 random{1};
  PortSpaces ports{[this] { return static_cast<uint32_t>(random()); }};

  Bound bind(const Bind& bind, ClientId client = kAlice) { return ports.bind(client, bind, {}); }
  static Bind at(wire::IpAddress address, uint16_t port = 7471) {
    return {.address = address, .v4 = address.is_v4(), .port = port};
  }
  static Bind any_v4(uint16_t port = 7471) { return {.v4 = true, .port = port}; }
  static Bind any_v6(bool v6_only, uint16_t port = 7471) { return {.v4 = false, .v6_only = v6_only, .port = port}; }
  static Bind reusing(Bind bind) {
    bind.reuse_address = true;
    return bind;
  }
  // What `second` gets where `first` is bound.
  int after(const Bind& first, const Bind& second) {
    const Bound bound = bind(first);
    EXPECT_EQ(bound.error, 0);
    const Bound other = bind(second, kBob);
    EXPECT_EQ(ports.release(kBob, other.id), other.error == 0 ? 0 : ENOENT);
    EXPECT_EQ(ports.release(kAlice, bound.id), 0);
    EXPECT_EQ(ports.size(), 0U);
    return other.error;
  }
};

TEST_F(PortSpacesTest, TheSameAddressAndPort) {
  EXPECT_EQ(after(at(v4(1)), at(v4(1))), EADDRINUSE);
  EXPECT_EQ(after(at(v6(1)), at(v6(1))), EADDRINUSE);
  EXPECT_EQ(after(at(v4(1)), at(v4(1), 7472)), 0);
  EXPECT_EQ(after(at(v4(1)), at(v4(2))), 0);
  EXPECT_EQ(after(at(v4(1)), at(v6(1))), 0);
}

TEST_F(PortSpacesTest, WildcardsLeaveNothingToOthers) {
  EXPECT_EQ(after(any_v4(), at(v4(1))), EADDRNOTAVAIL);
  EXPECT_EQ(after(at(v4(1)), any_v4()), EADDRNOTAVAIL);
  EXPECT_EQ(after(any_v4(), any_v4()), EADDRNOTAVAIL);
  EXPECT_EQ(after(any_v6(false), at(v6(1))), EADDRNOTAVAIL);
  EXPECT_EQ(after(any_v4(), any_v4(7472)), 0);
}

TEST_F(PortSpacesTest, WildcardsOfOneFamilyOrBoth) {
  EXPECT_EQ(after(any_v6(false), at(v4(1))), EADDRNOTAVAIL) << ":: takes IPv4 too";
  EXPECT_EQ(after(any_v4(), any_v6(false)), EADDRNOTAVAIL);
  EXPECT_EQ(after(any_v6(true), at(v4(1))), 0);
  EXPECT_EQ(after(any_v6(true), any_v4()), 0);
  EXPECT_EQ(after(any_v4(), any_v6(true)), 0);
  EXPECT_EQ(after(any_v4(), at(v6(1))), 0);
}

TEST_F(PortSpacesTest, LinkLocalAddressesAreOfANetdev) {
  Bind first = at(link_local(1)), second = first;
  first.netdev = 2;
  second.netdev = 3;
  EXPECT_EQ(after(first, second), 0);
  EXPECT_EQ(after(first, first), EADDRINUSE);
}

TEST_F(PortSpacesTest, ReuseIsFineUntilSomebodyListens) {
  EXPECT_EQ(after(reusing(at(v4(1))), at(v4(1))), EADDRINUSE) << "both must want it";
  EXPECT_EQ(after(at(v4(1)), reusing(at(v4(1)))), EADDRINUSE);
  EXPECT_EQ(after(reusing(at(v4(1))), reusing(at(v4(1)))), 0);
  EXPECT_EQ(after(reusing(any_v4()), reusing(any_v4())), 0);

  const Bound first = bind(reusing(at(v4(1)))), second = bind(reusing(at(v4(1))), kBob);
  EXPECT_EQ(ports.listen(kAlice, first.id), EADDRINUSE);
  EXPECT_EQ(ports.release(kBob, second.id), 0);
  EXPECT_EQ(ports.listen(kAlice, first.id), 0);
  EXPECT_EQ(bind(reusing(at(v4(1))), kBob).error, EADDRINUSE) << "from then on nobody";
  EXPECT_EQ(ports.set_reuse_address(kAlice, first.id, false), EINVAL);
}

TEST_F(PortSpacesTest, ReuseCanBeSetAfterBinding) {
  const Bound first = bind(at(v4(1)));
  EXPECT_EQ(bind(reusing(at(v4(1)))).error, EADDRINUSE);
  EXPECT_EQ(ports.set_reuse_address(kAlice, first.id, true), 0);
  EXPECT_EQ(bind(reusing(at(v4(1)))).error, 0);
}

TEST_F(PortSpacesTest, PortSpacesAreSeparate) {
  Bind udp = at(v4(1));
  udp.space = wire::PortSpace::kUdp;
  EXPECT_EQ(after(at(v4(1)), udp), 0);
}

TEST_F(PortSpacesTest, LowPortsAreForThePrivileged) {
  Bind low = at(v4(1), 1023);
  EXPECT_EQ(bind(low).error, EACCES);
  low.privileged = true;
  EXPECT_EQ(bind(low).error, 0);
  EXPECT_EQ(bind(at(v4(1), 1024)).error, 0);
}

TEST_F(PortSpacesTest, AnyPortIsRandomWithinTheRange) {
  std::set<uint16_t> seen;
  uint16_t before = 0, in_order = 0;
  for (int i = 0; i < 1000; ++i) {
    const Bound bound = bind(at(v4(1), 0));
    ASSERT_EQ(bound.error, 0);
    EXPECT_GE(bound.port, 32768);
    EXPECT_LE(bound.port, 60999);
    EXPECT_TRUE(seen.insert(bound.port).second);
    in_order = static_cast<uint16_t>(in_order + (bound.port > before ? 1 : 0));
    before = bound.port;
  }
  EXPECT_GT(in_order, 300);
  EXPECT_LT(in_order, 700);
}

TEST_F(PortSpacesTest, AllPortsAreTaken) {
  const PortRange few{.first = 40000, .last = 40009};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ports.bind(kAlice, at(v4(1), 0), few).error, 0);
  const Bound none = ports.bind(kBob, at(v4(1), 0), few);
  EXPECT_EQ(none.error, EADDRNOTAVAIL);
  EXPECT_EQ(ports.size(), 10U);
  ports.end_client(kAlice);
  EXPECT_EQ(ports.size(), 0U);
  EXPECT_EQ(ports.bind(kBob, at(v4(1), 0), {.first = 65535, .last = 65535}).port, 65535);
}

TEST_F(PortSpacesTest, ClientsDoNotSeeEachOther) {
  const Bound bound = bind(at(v4(1)));
  EXPECT_EQ(ports.release(kBob, bound.id), ENOENT);
  EXPECT_EQ(ports.listen(kBob, bound.id), ENOENT);
  EXPECT_EQ(ports.set_reuse_address(kBob, bound.id, true), ENOENT);
  bind(at(v4(2)), kBob);
  ports.end_client(kBob);
  EXPECT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports.release(kAlice, bound.id), 0);
  EXPECT_EQ(ports.release(kAlice, bound.id), ENOENT);
}

TEST_F(PortSpacesTest, AClientHasNoMoreThanItsShare) {
  for (uint32_t i = 0; i < PortSpaces::kMostOfClient; ++i) ASSERT_EQ(bind(at(v4(1), 0)).error, 0);
  EXPECT_EQ(bind(at(v4(1), 0)).error, ENFILE);
  EXPECT_EQ(bind(at(v4(1), 0), kBob).error, 0);
}

}  // namespace
}  // namespace uroce::cm::test

// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_spaces.h"

#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

#include "tests/cm/cost.h"
#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

struct PortSpacesTest : testing::Test {
  std::mt19937 random{1};
  PortSpaces ports{{}, [this] { return static_cast<uint32_t>(random()); }};

  Bound bind(const Bind& bind, ClientId client = kAlice, const PortRange& range = {}) {
    return ports.bind(client, {}, bind, range);
  }
  void end_client(ClientId client) {
    for (const BindingId id : ports.disown(client)) ports.free(id);
  }
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
  for (int i = 0; i < 10; ++i) EXPECT_EQ(bind(at(v4(1), 0), kAlice, few).error, 0);
  const Bound none = bind(at(v4(1), 0), kBob, few);
  EXPECT_EQ(none.error, EADDRNOTAVAIL);
  EXPECT_EQ(ports.size(), 10U);
  end_client(kAlice);
  EXPECT_EQ(ports.size(), 0U);
  EXPECT_EQ(bind(at(v4(1), 0), kBob, {.first = 65535, .last = 65535}).port, 65535);
}

TEST_F(PortSpacesTest, ClientsDoNotSeeEachOther) {
  const Bound bound = bind(at(v4(1)));
  EXPECT_EQ(ports.release(kBob, bound.id), ENOENT);
  EXPECT_EQ(ports.listen(kBob, bound.id), ENOENT);
  EXPECT_EQ(ports.set_reuse_address(kBob, bound.id, true), ENOENT);
  bind(at(v4(2)), kBob);
  end_client(kBob);
  EXPECT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports.release(kAlice, bound.id), 0);
  EXPECT_EQ(ports.release(kAlice, bound.id), ENOENT);
}

TEST_F(PortSpacesTest, AClientHasNoMoreThanItsShare) {
  for (uint32_t i = 0; i < Limits{}.bindings_of_client; ++i) ASSERT_EQ(bind(at(v4(1), 0)).error, 0);
  EXPECT_EQ(bind(at(v4(1), 0)).error, ENFILE);
  EXPECT_EQ(bind(at(v4(1), 0), kBob).error, 0);
}

// --- what others have left -------------------------------------------------------------------------------------------

constexpr Account kMallory{UserId{1}, false}, kTrent{UserId{2}, false}, kRoot{UserId{0}, true};

TEST_F(PortSpacesTest, AUserHasNoMoreThanOthersLeave) {
  PortSpaces few({.bindings = 64}, [this] { return static_cast<uint32_t>(random()); });
  // Of one port, which is no share of the range. Another client each time: it is the user who counts.
  const auto most = [&](const Account& account) {
    for (uint64_t i = 0;; ++i) {
      const Bound bound = few.bind(ClientId{i}, account, reusing(at(v4(1))), {});
      if (bound.error == 0) continue;
      EXPECT_EQ(bound.error, ENFILE);
      return i;
    }
  };
  EXPECT_EQ(most(kMallory), 31u) << "half of 64, but for the 2 that are kept";
  EXPECT_EQ(most(kTrent), 16u);
  EXPECT_EQ(most(kRoot), 17u) << "all that there is";
}

TEST_F(PortSpacesTest, AUserHasNoMoreOfTheRangeThanOthersLeave) {
  const PortRange range{.first = 40000, .last = 40063};
  const auto most = [&](const Account& account, const std::function<uint16_t(uint16_t)>& port) {
    for (uint16_t i = 0;; ++i) {
      const Bound bound = ports.bind(kAlice, account, at(v4(1), port(i)), range);
      if (bound.error == 0) continue;
      EXPECT_EQ(bound.error, ENFILE);
      return i;
    }
  };
  EXPECT_EQ(most(kMallory, [](uint16_t i) { return static_cast<uint16_t>(40000 + i); }), 31u) << "named one by one";
  EXPECT_EQ(most(kTrent, [](uint16_t) { return uint16_t{0}; }), 16u);
  EXPECT_EQ(ports.bind(kBob, kMallory, at(v4(1), 40100), range).error, 0) << "elsewhere";
  Bind udp = at(v4(1), 0);
  udp.space = wire::PortSpace::kUdp;
  EXPECT_EQ(ports.bind(kBob, kMallory, udp, range).error, 0) << "another range";
  for (int i = 0; i < 17; ++i) EXPECT_EQ(ports.bind(kBob, kRoot, at(v4(1), 0), range).error, 0);
  EXPECT_EQ(ports.bind(kBob, kRoot, at(v4(1), 0), range).error, EADDRNOTAVAIL);
}

// --- what it costs ---------------------------------------------------------------------------------------------------

TEST_F(PortSpacesTest, ManyBindingsOfOnePortCostNoMoreEach) {
  const auto run = [&](int count, auto&& measure) {
    PortSpaces some({}, [] { return 1U; });
    measure([&] {
      for (int i = 0; i < count; ++i) EXPECT_EQ(some.bind(kAlice, {}, reusing(at(v4(1))), {}).error, 0);
      for (const BindingId id : some.disown(kAlice)) some.free(id);
    });
  };
  EXPECT_LT(growth(run, 2000), kMostGrowth);
}

TEST_F(PortSpacesTest, ARangeThatIsFullIsKnownWithoutALookAtEach) {
  const auto run = [&](int ports_in_all, auto&& measure) {
    const PortRange range{.first = 20000, .last = static_cast<uint16_t>(20000 + ports_in_all - 1)};
    PortSpaces full({.bindings_of_client = 65536}, [] { return 1U; });
    for (uint32_t port = range.first; port <= range.last; ++port) {
      EXPECT_EQ(full.bind(kAlice, {}, at(v4(1), static_cast<uint16_t>(port)), range).error, 0);
    }
    measure([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(full.bind(kBob, {}, at(v4(1), 0), range).error, EADDRNOTAVAIL);
      }
    });
  };
  EXPECT_LT(cost(run, 32000) / cost(run, 32), 200) << "of a thousand times as many";
}

TEST(PortSetTest, CountsAndFinds) {
  std::mt19937 random{2};
  for (int times = 0; times < 200; ++times) {
    PortSet set;
    std::set<uint32_t> taken{0};
    const auto first = static_cast<uint16_t>(random() % 2 == 0 ? random() % 300 : 65536 - 1 - random() % 300);
    const auto last = static_cast<uint16_t>(std::min<uint32_t>(65535, first + random() % 300));
    for (uint32_t i = random() % 400; i > 0; --i) {
      const auto port = static_cast<uint16_t>(first + random() % 300 - 20);
      if (random() % 4 == 0 && port != 0) set.remove(port), taken.erase(port);
      if (random() % 4 != 0) set.add(port), taken.insert(port);
    }
    std::vector<uint16_t> free;
    for (uint32_t port = first; port <= last; ++port) {
      if (!taken.contains(port)) free.push_back(static_cast<uint16_t>(port));
    }
    const PortRange range{first, last};
    ASSERT_EQ(set.count(range), range.size() - free.size());
    for (uint32_t i = 0; i < free.size(); ++i) ASSERT_EQ(set.free_one(range, i), free[i]);
  }
}

// The counts say what a look at each other binding of the port says.
TEST(PortUseTest, IsWhatEachOfTheOthersSays) {
  struct One {
    Bind bind;
    bool listening;
  };
  const auto is_one_family = [](const Bind& b) { return b.v4 || b.v6_only || !b.address.is_unspecified(); };
  const auto says = [&](const Bind& a, const One& other, bool may_share) {
    const Bind& b = other.bind;
    if (may_share && a.reuse_address && b.reuse_address && !other.listening) return 0;
    if (a.v4 != b.v4 && is_one_family(a) && is_one_family(b)) return 0;
    if (a.address.is_unspecified() || b.address.is_unspecified()) return EADDRNOTAVAIL;
    return a.address == b.address && a.netdev == b.netdev ? EADDRINUSE : 0;
  };
  std::mt19937 random{3};
  const auto some = [&] {
    const wire::IpAddress addresses[] = {{}, {}, v4(1), v4(2), v6(1), link_local(1)};
    Bind bind{.address = addresses[random() % 6]};
    bind.v4 = bind.address.is_unspecified() ? random() % 2 == 0 : bind.address.is_v4();
    bind.v6_only = random() % 2 == 0;
    bind.netdev = bind.address == link_local(1) ? 1 + random() % 2 : 0;
    bind.reuse_address = random() % 4 != 0;
    return bind;
  };
  std::set<int> seen;
  for (int times = 0; times < 3000; ++times) {
    PortUse use;
    std::vector<One> all;
    for (uint32_t i = random() % 6; i > 0; --i) {
      all.push_back({some(), random() % 4 == 0});
      use.add(all.back().bind, all.back().listening);
    }
    if (!all.empty() && random() % 2 == 0) {
      use.remove(all.back().bind, all.back().listening);
      all.pop_back();
    }
    ASSERT_EQ(use.is_free(), all.empty());
    const Bind wanted = some();
    for (const bool may_share : {false, true}) {
      std::set<int> errors;
      for (const One& other : all) errors.insert(says(wanted, other, may_share));
      const int expected = errors.contains(EADDRNOTAVAIL) ? EADDRNOTAVAIL
                           : errors.contains(EADDRINUSE)  ? EADDRINUSE
                                                          : 0;
      ASSERT_EQ(use.conflict(wanted, may_share), expected);
      seen.insert(expected);
    }
  }
  EXPECT_EQ(seen.size(), 3u);
}

}  // namespace
}  // namespace uroce::cm::test

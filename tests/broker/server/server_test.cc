// SPDX-License-Identifier: BSD-2-Clause
// The broker's answers: leases, DPDK ports, and what passes from one broker to the next.
#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <vector>

#include "base/concat.h"
#include "tests/broker/server/server_rig.h"

namespace uroce::broker {
namespace {

TEST_F(ServerTest, LeasesDifferentRangesWithSockets) {
  RunningBroker broker(kernel_, address_);
  std::set<uint32_t> ranges;
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) {
    RawClient& client = clients.emplace_back(address_);
    EXPECT_EQ(client.greet().kind, Kind::kWelcome);
    for (int netdev = 1; netdev <= 2; ++netdev) {
      const Message answer = client.lease(netdev);
      ASSERT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
      EXPECT_TRUE(client.descriptors()[0] && client.descriptors()[1] && client.descriptors()[2]);
      EXPECT_EQ(answer.has_v6, 1u);
      EXPECT_TRUE(kernel_.is_steered(answer.range));
      EXPECT_GE(answer.range, LeaseRange::kFirstNumber);
      EXPECT_LE(answer.range, LeaseRange::kLastNumber);
      ranges.insert(answer.range);
    }
  }
  EXPECT_EQ(ranges.size(), 16u);
}

TEST_F(ServerTest, EndOfConnectionAndReturnEndLeases) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const uint32_t first = a.lease(1).range, second = a.lease(2).range, other = b.lease(1).range;
  Message back = make_message(Kind::kReturn);
  back.range = other;
  a.say(back);  // not its own
  back.range = first;
  a.say(back);
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(first); }));
  EXPECT_TRUE(kernel_.is_steered(second));
  a.leave();
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(second); }));
  EXPECT_TRUE(kernel_.is_steered(other));
}

TEST_F(ServerTest, RangesRestBeforeTheyAreLeasedAgain) {
  kernel_.last_number = 64;
  RunningBroker broker(kernel_, address_);
  std::vector<uint32_t> order;
  for (int i = 0; i < 200; ++i) {
    RawClient client(address_);
    client.greet();
    const uint32_t range = client.lease(1).range;
    for (size_t back = 1; back <= 15 && back <= order.size(); ++back) ASSERT_NE(order[order.size() - back], range) << i;
    order.push_back(range);
    client.leave();
    ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  }
}

TEST_F(ServerTest, BoundsWhatAClientGets) {
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (size_t i = 0; i < kMostLeases; ++i) ASSERT_EQ(client.lease(static_cast<int>(i)).kind, Kind::kGranted);
  const Message refused = client.lease(100);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_NE(text_of(refused).find("16 netdevs"), std::string::npos) << text_of(refused);
}

TEST_F(ServerTest, SaysWhenAllNumbersAreLeased) {
  kernel_.last_number = 4;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(client.lease(i).kind, Kind::kGranted);
  const Message refused = client.lease(9);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, ENOSPC);
}

TEST_F(ServerTest, OneProcessHasTheAfXdpQueuesOfANetdevBesideOthersWithSockets) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  EXPECT_EQ(b.lease(1).kind, Kind::kGranted);
  const Message leased = a.lease(1, Plane::kAfXdp);
  ASSERT_EQ(leased.kind, Kind::kGranted);
  EXPECT_TRUE(a.descriptors()[0]) << "sockets come with it";
  EXPECT_TRUE(kernel_.is_steered(leased.range));
  attach(1, "uroce_steer_qpn");
  EXPECT_EQ(b.lease(1).kind, Kind::kGranted);
  const Message refused = b.lease(1, Plane::kAfXdp);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, EBUSY);
  EXPECT_NE(text_of(refused).find(concat("process ", getpid(), " (raw)")), std::string::npos) << text_of(refused);
  EXPECT_EQ(b.lease(2, Plane::kAfXdp).kind, Kind::kGranted) << "another netdev";
  a.leave();
  EXPECT_TRUE(comes_true([&] { return b.lease(1, Plane::kAfXdp).kind == Kind::kGranted; }));
  EXPECT_FALSE(kernel_.is_steered(leased.range));
}

// To ask for the queues takes no privilege, to attach the program does.
TEST_F(ServerTest, WhoDoesNotUseTheQueuesKeepsNobodyFromThem) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  EXPECT_EQ(a.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
  EXPECT_EQ(b.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
}

TEST_F(ServerTest, ProcessWithoutBrokerKeepsOthersFromItsNetdev) {
  RunningBroker broker(kernel_, address_);
  attach(1, "uroce_steer");
  attach(2, "somebody_else");
  RawClient client(address_);
  client.greet();
  for (const Plane plane : {Plane::kSockets, Plane::kAfXdp}) {
    const Message refused = client.lease(1, plane);
    EXPECT_EQ(refused.error, EBUSY);
    EXPECT_NE(text_of(refused).find("on eth without broker (XDP program id 7)"), std::string::npos) << text_of(refused);
    EXPECT_EQ(client.lease(2, plane).kind, Kind::kGranted) << "for the client to see";
  }
}

TEST_F(ServerTest, AfXdpLeasesAreTakenOver) {
  Message claim = make_message(Kind::kClaim);
  claim.ifindex = 1;
  claim.plane = Plane::kAfXdp;
  claim.has_v6 = 1;
  Descriptors kept;
  {
    RunningBroker broker(kernel_, address_);
    RawClient survivor(address_);
    survivor.greet();
    ASSERT_EQ(survivor.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
    kept = std::move(survivor.descriptors());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient survivor(address_), other(address_);
  survivor.greet();
  other.greet();
  const std::array sockets{kept[0].get(), kept[1].get(), kept[2].get()};
  const Message answer = survivor.ask(claim, sockets);
  ASSERT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
  EXPECT_TRUE(kernel_.is_steered(answer.range));
  attach(1, "uroce_steer_qpn");
  EXPECT_EQ(other.lease(1, Plane::kAfXdp).error, EBUSY);
  EXPECT_EQ(other.lease(1).kind, Kind::kGranted);
}

Message port_request(Kind kind, const std::string& port) {
  return make_message(kind, port);
}

TEST_F(ServerTest, OneProcessHasADpdkPort) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const Message hold = port_request(Kind::kHold, "0000:01:00.0");
  EXPECT_EQ(a.ask(hold).kind, Kind::kGranted);
  EXPECT_EQ(a.ask(hold).kind, Kind::kGranted) << "it has it";
  const Message refused = b.ask(hold);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, EBUSY);
  EXPECT_EQ(text_of(refused), concat("process ", getpid(),
                                     " (raw) has this DPDK port, which one process at a time can "
                                     "use: 0000:01:00.0"));
  EXPECT_EQ(b.ask(port_request(Kind::kHold, "0000:01:00.1")).kind, Kind::kGranted);
  a.leave();
  EXPECT_TRUE(comes_true([&] { return b.ask(hold).kind == Kind::kGranted; }));
}

TEST_F(ServerTest, DpdkPortsAreGivenBackAndCounted) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  for (size_t i = 0; i < kMostPorts; ++i) {
    ASSERT_EQ(a.ask(port_request(Kind::kHold, concat("port ", i))).kind, Kind::kGranted);
  }
  EXPECT_NE(text_of(a.ask(port_request(Kind::kHold, "one more"))).find("16 DPDK ports"), std::string::npos);
  EXPECT_EQ(b.ask(port_request(Kind::kHold, "port 3")).error, EBUSY);
  a.say(port_request(Kind::kRelease, "port 3"));
  EXPECT_TRUE(comes_true([&] { return b.ask(port_request(Kind::kHold, "port 3")).kind == Kind::kGranted; }));
  EXPECT_EQ(a.ask(port_request(Kind::kHold, "port 3")).error, EBUSY);
}

TEST_F(ServerTest, ServesOnlyItsOwnNamespaceUserAndVersion) {
  {
    RunningBroker broker(kernel_, address_);
    RawClient stranger(address_);
    Message message = RawClient::hello();
    message.network_namespace += 1;
    EXPECT_EQ(stranger.ask(message).error, EXDEV);
    EXPECT_TRUE(stranger.hung_up());

    RawClient newer(address_);
    message = RawClient::hello();
    message.version += 1;
    const Message answer = newer.ask(message);
    EXPECT_EQ(answer.kind, Kind::kRefused);
    EXPECT_EQ(answer.error, ENOTSUP);
    EXPECT_EQ(text_of(answer), concat("it speaks version ", kProtocolVersion, " and this program version ",
                                      kProtocolVersion + 1, ": install the same uroce for both, or end uroced (kill ",
                                      getpid(), ") so that the program starts its own"));
    EXPECT_TRUE(newer.hung_up());

    RawClient older(address_);
    message.version = 0;
    EXPECT_NE(
        text_of(older.ask(message)).find(concat("it speaks version ", kProtocolVersion, " and this program version 0")),
        std::string::npos);
    EXPECT_TRUE(older.hung_up());
  }
}

TEST_F(ServerTest, ServesAllUsersOrAGroup) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto code = [this] {
    int error = -1;
    as_user(kUser, [&] { error = RawClient(address_).greet().error; });
    return error;
  };
  {
    RunningBroker broker(kernel_, address_);
    EXPECT_EQ(code(), 0);
  }
  for (const auto& [group, expected] : {std::pair(gid_t{kUser}, 0), std::pair(gid_t{kOtherUser}, EACCES)}) {
    RunningBroker broker(kernel_, address_, {.owner = 0, .group = group, .linger = {}});
    EXPECT_EQ(code(), expected);
  }
}

TEST_F(ServerTest, ServesItsOwnerOnlyWhereUsersAreNotKeptApart) {
  UROCE_SKIP_UNLESS_ROOT();
  kernel_.isolation_obstacle = "it is too small";
  RunningBroker broker(kernel_, address_, {.owner = kOtherUser, .group = {}, .linger = {}});
  as_user(kUser, [&] {
    RawClient stranger(address_);
    const Message answer = stranger.greet();
    EXPECT_EQ(answer.error, EACCES);
    EXPECT_NE(text_of(answer).find("it is too small"), std::string::npos) << text_of(answer);
    EXPECT_TRUE(stranger.hung_up());
  });
  as_user(kOtherUser, [&] { EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome); });
  EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome);
}

// Each socket that is open makes the kernel slower, for all.
TEST_F(ServerTest, ARangeIsNotFreeWhileItsSocketsAreKept) {
  kernel_.last_number = 2;
  kernel_.clients_keep_sockets = true;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (int i = 0; i < 2; ++i) {
    Message back = make_message(Kind::kReturn);
    back.range = client.lease(1).range;
    client.say(back);
  }
  EXPECT_EQ(client.lease(1).error, ENOSPC);
  {
    const std::lock_guard guard(kernel_.lock);
    kernel_.clients_keep_sockets = false;
    kernel_.kept.clear();
  }
  EXPECT_TRUE(comes_true([&] { return client.lease(1).kind == Kind::kGranted; }));
}

// Clients of an earlier broker who have not come back may live.
TEST_F(ServerTest, RangesThatAreNotFreeAtTheStartAreNotLeased) {
  kernel_.last_number = 3;
  kernel_.survivors = true;
  kernel_.kept = {1, 3};
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  EXPECT_EQ(client.lease(1).range, 2u);
  EXPECT_EQ(client.lease(1).error, ENOSPC);
}

TEST_F(ServerTest, LingersAfterTheLastClient) {
  RunningBroker broker(kernel_, address_, {.owner = geteuid(), .group = {}, .linger = std::chrono::milliseconds(300)});
  RawClient client(address_);
  client.greet();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_FALSE(broker.ended()) << "somebody is there";
  client.leave();
  EXPECT_TRUE(comes_true([&] { return broker.ended(); }));
}

TEST_F(ServerTest, SurvivorsComeBackBeforeOthersAreServed) {
  Message claim = make_message(Kind::kClaim);
  claim.ifindex = 1;
  claim.has_v6 = 1;
  uint32_t range = 0;
  std::vector<int> sockets;
  Descriptors kept;
  {
    RunningBroker broker(kernel_, address_);
    RawClient survivor(address_);
    survivor.greet();
    range = survivor.lease(1).range;
    kept = std::move(survivor.descriptors());
  }
  for (const UniqueFd& descriptor : kept) {
    if (descriptor) sockets.push_back(descriptor.get());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient newcomer(address_), survivor(address_), liar(address_);
  newcomer.greet();
  survivor.greet();
  liar.greet();
  Message request = make_message(Kind::kLease, "eth");
  request.ifindex = 1;
  newcomer.say(request);
  pollfd answered{newcomer.socket(), POLLIN, 0};
  const Message answer = survivor.ask(claim, sockets);
  EXPECT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
  EXPECT_EQ(answer.range, range);
  EXPECT_EQ(poll(&answered, 1, 0), 0) << "it waits";
  EXPECT_EQ(liar.ask(claim, sockets).error, EBUSY) << "somebody has them";
  EXPECT_EQ(newcomer.listen().kind, Kind::kGranted);
}

// Who has returned a range and kept its sockets comes first to the next broker, and then who has it.
TEST_F(ServerTest, ALaterLeaseOfARangeEndsAnEarlierOne) {
  kernel_.last_number = 1;
  Message claim = make_message(Kind::kClaim);
  claim.has_v6 = 1;
  Descriptors kept, current;
  {
    RunningBroker broker(kernel_, address_);
    RawClient thief(address_), victim(address_);
    thief.greet();
    ASSERT_EQ(thief.lease(1).kind, Kind::kGranted);
    kept = std::move(thief.descriptors());
    thief.leave();
    ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(1); }));
    victim.greet();
    ASSERT_EQ(victim.lease(1).kind, Kind::kGranted);
    current = std::move(victim.descriptors());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient thief(address_), victim(address_);
  thief.greet();
  victim.greet();
  const std::array stolen{kept[0].get(), kept[1].get(), kept[2].get()};
  const std::array own{current[0].get(), current[1].get(), current[2].get()};
  EXPECT_EQ(thief.ask(claim, stolen).kind, Kind::kGranted);
  EXPECT_EQ(victim.ask(claim, own).kind, Kind::kGranted);
  EXPECT_EQ(thief.ask(claim, stolen).error, EBUSY);
  Message back = make_message(Kind::kReturn);
  back.range = 1;
  thief.say(back);
  EXPECT_EQ(thief.lease(1).error, ENOSPC) << "it is the victim's";
  EXPECT_TRUE(kernel_.is_steered(1));
}

// Sockets of several leases, which one connection brings.
TEST_F(ServerTest, WhatAClientBringsBackIsBoundedLikeWhatItGets) {
  Message claim = make_message(Kind::kClaim);
  claim.has_v6 = 1;
  std::vector<Descriptors> kept;
  {
    RunningBroker broker(kernel_, address_);
    for (size_t clients = 0; clients < 2; ++clients) {
      RawClient client(address_);
      client.greet();
      for (size_t i = 0; i < kMostLeases; ++i) {
        ASSERT_EQ(client.lease(1).kind, Kind::kGranted);
        kept.push_back(std::move(client.descriptors()));
      }
    }
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (size_t i = 0; i < kept.size(); ++i) {
    const Message answer = client.ask(claim, std::array{kept[i][0].get(), kept[i][1].get(), kept[i][2].get()});
    EXPECT_EQ(answer.kind, i < kMostLeases ? Kind::kGranted : Kind::kRefused) << i;
  }
}

TEST_F(ServerTest, SaysWhyItCannotStart) {
  kernel_.survivors = true;
  kernel_.start_error = EBUSY;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  const Message refused = client.lease(1);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(text_of(refused), "cannot start; try");
}

TEST_F(ServerTest, ManyClients) {
  RunningBroker broker(kernel_, address_);
  std::vector<RawClient> clients;
  std::set<uint32_t> ranges;
  for (int i = 0; i < 256; ++i) {
    RawClient& client = clients.emplace_back(address_);
    client.greet();
    ranges.insert(client.lease(1).range);
    client.descriptors() = {};
  }
  EXPECT_EQ(ranges.size(), 256u);
}

}  // namespace
}  // namespace uroce::broker

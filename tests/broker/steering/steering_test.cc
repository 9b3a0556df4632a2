// SPDX-License-Identifier: BSD-2-Clause
// Steering between real sockets on real netdevs: who gets which packet, while clients come, go and are killed.
#include "broker/steering/steering.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/steering/cgroup.h"
#include "broker/steering/holders.h"
#include "tests/broker/steering/port_lab.h"
#include "tests/engine/io/exchange.h"

namespace uroce::broker::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SteeringOf : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    lab_ = std::make_unique<PortLab>();
  }
  std::unique_ptr<Steering> open(bool inherits = false) { return lab_->open(GetParam(), inherits); }

  // Each gets what is for it, and nothing else.
  void expect_steered(const PortSockets& sockets, uint32_t number) {
    const uint32_t qpn = LeaseRange{number}.first() + 5;
    for (const int family : {AF_INET, AF_INET6}) {
      lab_->send(family, qpn);
      EXPECT_EQ(receive(socket_of(sockets, family)), (Arrived{qpn, 1})) << number;
    }
  }

  std::unique_ptr<PortLab> lab_;
};

TEST_P(SteeringOf, SinglesAndRunsComeToTheMemberWithTheirQpn) {
  const auto steering = open();
  const PortSockets first = admit(*steering, 1), second = admit(*steering, 7),
                    last = admit(*steering, steering->last_number());
  for (const int family : {AF_INET, AF_INET6}) {
    for (const Way way : {Way::kVeth, Way::kLoopback}) {
      for (const size_t count : {1u, 2u, 40u}) {
        const uint32_t last_first = LeaseRange{steering->last_number()}.first();
        for (const auto& [sockets, qpn] :
             {std::pair{&first, 0x4000u}, std::pair{&first, 0x7fffu}, std::pair{&second, 0x1c000u},
              std::pair{&second, 0x1ffffu}, std::pair{&last, last_first}, std::pair{&last, last_first + 0x3fff}}) {
          lab_->send(family, qpn, count, way);
          EXPECT_EQ(receive(socket_of(*sockets, family)), (Arrived{qpn, count}));
        }
      }
    }
    for (const PortSockets* const sockets : {&first, &second, &last})
      EXPECT_THAT(arrived(socket_of(*sockets, family)), IsEmpty());
  }
}

TEST_P(SteeringOf, WhatIsForNobodyComesToTheBroker) {
  const auto steering = open();
  const PortSockets client = admit(*steering, 2);
  uint64_t count = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const Way way : {Way::kVeth, Way::kLoopback}) {
      for (const uint32_t qpn : {0u, 1u, 0x3fffu, 0x4000u, 0xc000u, 0xffbfffu, 0xffc000u, 0xffffffu}) {
        lab_->send(family, qpn, 1, way);
        EXPECT_TRUE(unclaimed(*steering, ++count)) << qpn;
      }
      lab_->send(family, 0xc000, 20, way);
      EXPECT_TRUE(unclaimed(*steering, ++count)) << "a run";
      for (const size_t size : {0u, 1u, 7u}) {
        lab_->send_bytes(family, std::vector<uint8_t>(size, 0), 100, way);
        EXPECT_TRUE(unclaimed(*steering, ++count)) << size << " bytes";
      }
    }
    EXPECT_THAT(arrived(socket_of(client, family)), IsEmpty());
  }
}

TEST(PortSockets, LeaseIsReadFromItsFilter) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const bool without_copies : {false, true}) {
      const UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const LeaseId lease{{77}, 0x123456789abcdef0, without_copies};
      EXPECT_EQ(locked_lease(fd.get()), std::nullopt);
      ASSERT_EQ(lock_to(fd.get(), lease), 0);
      EXPECT_EQ(locked_lease(fd.get()), lease);
    }
  }
}

// To who sees it by a port of DPDK: the first packet without checksum is seen there. Without privileges nobody can have
// such a port.
TEST_P(SteeringOf, CopiesOfWhatCameByAPortAreLeftOut) {
  const auto steering = open();
  const PortSockets port = admit(*steering, 1, true), sockets = admit(*steering, 2);
  for (const int family : {AF_INET, AF_INET6}) {
    EXPECT_EQ(lab_->join(socket_of(port, family), family), 0);
    const bool leaves_out = GetParam() == Kind::kMap;
    lab_->send_without_checksum(family, 0x4001, Way::kVeth);
    if (!leaves_out) {
      EXPECT_EQ(receive(socket_of(port, family)), (Arrived{0x4001, 1}));
    }
    lab_->send_without_checksum(family, 0x4002, Way::kLoopback);
    EXPECT_EQ(receive(socket_of(port, family)), (Arrived{0x4002, 1})) << "comes by no port";
    lab_->send(family, 0x4003, 20);
    EXPECT_EQ(receive(socket_of(port, family)), (Arrived{0x4003, 20})) << "too long for a port";
    lab_->send_to_group(family);
    EXPECT_EQ(receive(socket_of(port, family)), (Arrived{0xffffff, 1}));
    lab_->send_without_checksum(family, 0x8001, Way::kVeth);
    EXPECT_EQ(receive(socket_of(sockets, family)), (Arrived{0x8001, 1}));
    EXPECT_THAT(arrived(socket_of(port, family)), IsEmpty());
  }
}

// What this host sends to itself comes over lo.
TEST_P(SteeringOf, PacketsFromElsewhereWithOurAddressAreDropped) {
  const auto steering = open();
  const PortSockets client = admit(*steering, 1);
  lab_->forge(0x4007);
  expect_steered(client, 1);
  lab_->send(AF_INET6, 0x4008, 1, Way::kLoopback);
  EXPECT_EQ(receive(client.v6.get()), (Arrived{0x4008, 1}));
}

TEST_P(SteeringOf, MulticastComesToEachThatJoinedOnce) {
  const auto steering = open();
  const PortSockets first = admit(*steering, 1), second = admit(*steering, 2), other = admit(*steering, 3);
  for (const int family : {AF_INET, AF_INET6}) {
    EXPECT_EQ(lab_->join(socket_of(first, family), family), 0);
    EXPECT_EQ(lab_->join(socket_of(second, family), family), 0);
    lab_->send_to_group(family);
    EXPECT_EQ(receive(socket_of(first, family)), (Arrived{0xffffff, 1}));
    EXPECT_EQ(receive(socket_of(second, family)), (Arrived{0xffffff, 1}));
    expect_steered(first, 1);  // by when a second copy would be there
    for (const PortSockets* const sockets : {&first, &second, &other}) {
      EXPECT_THAT(arrived(socket_of(*sockets, family)), IsEmpty());
    }
  }
  EXPECT_EQ(steering->unclaimed(), 0u);
}

// The client's sockets are left open here: whoever has inherited them gets nothing any more.
TEST_P(SteeringOf, PacketsOfADismissedClientAreTheBrokers) {
  const auto steering = open();
  const PortSockets other = admit(*steering, 2);
  PortSockets gone = admit(*steering, 1);
  for (const int family : {AF_INET, AF_INET6}) EXPECT_EQ(lab_->join(socket_of(gone, family), family), 0);
  if (GetParam() == Kind::kSlots) gone = {};  // the socket itself is the broker's again
  steering->dismiss({1});
  uint64_t count = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    lab_->send(family, 0x4000);
    EXPECT_TRUE(unclaimed(*steering, ++count));
    if (gone.v4) {
      EXPECT_THAT(arrived(socket_of(gone, family)), IsEmpty());
    }
  }
  expect_steered(other, 2);
  gone = {};
  const PortSockets next = admit(*steering, 1);
  for (const int family : {AF_INET, AF_INET6}) lab_->send_to_group(family);
  expect_steered(next, 1);  // neither in groups of the earlier one nor with packets that came in between
  for (const int family : {AF_INET, AF_INET6}) EXPECT_THAT(arrived(socket_of(next, family)), IsEmpty());
}

TEST_P(SteeringOf, PacketsOfAClientThatEndedAreNotAnothers) {
  const auto steering = open();
  const PortSockets first = admit(*steering, 1);
  admit(*steering, 2);
  const PortSockets third = admit(*steering, 3);
  for (const int family : {AF_INET, AF_INET6}) lab_->send(family, 0x8000);
  expect_steered(first, 1);
  expect_steered(third, 3);
  steering->dismiss({2});
  EXPECT_TRUE(unclaimed(*steering, 2));
}

// What an application may have changed about its sockets does not meet the next one.
TEST_P(SteeringOf, ALeaseBeginsWithFreshSockets) {
  const auto steering = open();
  {
    const PortSockets client = admit(*steering, 1);
    const int off = 0;
    for (const int family : {AF_INET, AF_INET6})
      setsockopt(socket_of(client, family), SOL_UDP, UDP_GRO, &off, sizeof(off));
    steering->dismiss({1});
  }
  const PortSockets next = admit(*steering, 1);
  for (const int family : {AF_INET, AF_INET6}) {
    lab_->send(family, 0x4000, 10);
    EXPECT_EQ(receive(socket_of(next, family)), (Arrived{0x4000, 10}));
  }
}

TEST_P(SteeringOf, Serves256Clients) {
  const auto steering = open();
  std::vector<PortSockets> clients;
  for (uint32_t number = 1; number <= 256; ++number) {
    clients.push_back(admit(*steering, number));
    steering->work();
  }
  for (uint32_t number = 1; number <= 256; ++number) expect_steered(clients[number - 1], number);
  for (const PortSockets& sockets : clients) {
    for (const int family : {AF_INET, AF_INET6}) EXPECT_THAT(arrived(socket_of(sockets, family)), IsEmpty());
  }
}

// --- a broker that was killed ---------------------------------------------------------------------------------------

TEST_P(SteeringOf, LivingClientsGoOnWithoutBrokerAndWithTheNextOne) {
  BrokerProcess broker(*lab_, GetParam(), {1, 2, 3, 4});
  const PortSockets first = broker.take(0), third = broker.take(2);
  broker.take(1);  // and closed: died before the broker
  PortSockets fourth = broker.take(3);
  for (const int family : {AF_INET, AF_INET6}) EXPECT_EQ(lab_->join(socket_of(third, family), family), 0);
  broker.kill();
  expect_steered(first, 1);
  expect_steered(third, 3);
  expect_steered(fourth, 4);
  fourth = {};  // dies while there is no broker
  expect_steered(third, 3);

  const auto steering = open(true);
  ASSERT_TRUE(steering->inherits());
  expect_steered(first, 1);
  EXPECT_EQ(readmit(*steering, copy(first)), 1u);
  expect_steered(first, 1);
  expect_steered(third, 3);
  EXPECT_EQ(readmit(*steering, copy(third)), 3u);
  EXPECT_FALSE(steering->start());
  expect_steered(first, 1);
  expect_steered(third, 3);
  const PortSockets again = admit(*steering, 4), fresh = admit(*steering, 9);
  for (const auto& [sockets, number] :
       {std::pair{&first, 1u}, std::pair{&third, 3u}, std::pair{&again, 4u}, std::pair{&fresh, 9u}}) {
    expect_steered(*sockets, number);
  }
  for (const int family : {AF_INET, AF_INET6}) {
    lab_->send(family, 0x8000);
    lab_->send_to_group(family);
    EXPECT_EQ(receive(socket_of(third, family)), (Arrived{0xffffff, 1}));
  }
  EXPECT_TRUE(unclaimed(*steering, 2)) << "of the second one, which died";
  steering->dismiss({1});
  lab_->send(AF_INET, 0x4000);
  EXPECT_TRUE(unclaimed(*steering, 3));
}

// The kernel may find it without looking at the others.
TEST_P(SteeringOf, MulticastComesToTheOnlySocketOfTheHost) {
  BrokerProcess broker(*lab_, GetParam(), {1});
  const PortSockets client = broker.take(0);
  broker.kill();
  for (const int family : {AF_INET, AF_INET6}) {
    EXPECT_EQ(lab_->join(socket_of(client, family), family), 0);
    lab_->send_to_group(family);
    EXPECT_EQ(receive(socket_of(client, family)), (Arrived{0xffffff, 1})) << family;
  }
}

// And one more time: what the second one has taken over is enough for the third.
TEST_P(SteeringOf, TwoBrokersDieOneAfterTheOther) {
  PortSockets first, second;
  {
    BrokerProcess broker(*lab_, GetParam(), {5, 6});
    first = broker.take(0);
    second = broker.take(1);
  }
  {
    const auto steering = open(true);
    EXPECT_EQ(readmit(*steering, copy(first)), 5u);
    EXPECT_EQ(readmit(*steering, copy(second)), 6u);
    EXPECT_FALSE(steering->start());
  }
  expect_steered(first, 5);
  expect_steered(second, 6);
  const auto steering = open(true);
  EXPECT_EQ(readmit(*steering, copy(second)), 6u);
  EXPECT_FALSE(steering->start());
  EXPECT_EQ(readmit(*steering, copy(first)), 5u) << "late";
  expect_steered(first, 5);
  expect_steered(second, 6);
  const PortSockets fresh = admit(*steering, 7);
  expect_steered(fresh, 7);
}

TEST_P(SteeringOf, AHeirWhomNobodyComesToBeginsAnew) {
  { BrokerProcess broker(*lab_, GetParam(), {5, 6}); }
  const auto steering = open(true);
  EXPECT_FALSE(steering->start());
  const PortSockets fresh = admit(*steering, 5);
  expect_steered(fresh, 5);
}

std::vector<std::string> cgroups() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(own_cgroup())) {
    const std::string name = entry.path().filename();
    if (name.rfind("uroce-sockets-", 0) == 0) names.push_back(name);
  }
  return names;
}

TEST_P(SteeringOf, NothingStaysWhenAllHaveGone) {
  std::vector<uint32_t> programs;
  {
    BrokerProcess broker(*lab_, GetParam(), {1, 2});
    programs = broker.programs();
    EXPECT_EQ(programs.empty(), GetParam() == Kind::kSlots);
    const PortSockets client = broker.take(0);
    broker.kill();
    EXPECT_FALSE(port_holders()->empty());
  }
  EXPECT_TRUE(port_holders()->empty());
  EXPECT_TRUE(unloaded(programs));
  EXPECT_TRUE(io::test::eventually([] { return cgroups().empty(); })) << cgroups().front();
}

INSTANTIATE_TEST_SUITE_P(, SteeringOf, testing::Values(Kind::kMap, Kind::kSlots),
                         [](const auto& kind) { return kind.param == Kind::kMap ? "Map" : "Slots"; });

}  // namespace
}  // namespace uroce::broker::test

// SPDX-License-Identifier: BSD-2-Clause
// What clients of the broker's connection manager get from it, and what is left when they end.
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/concat.h"
#include "tests/broker/server/cm_server_rig.h"

namespace uroce::broker {
namespace {

using namespace std::chrono_literals;

// --- two clients of one broker ---------------------------------------------------------------------------------------

using CmOneHost = CmServerTest;

TEST_F(CmOneHost, ClientsConnectToEachOther) {
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  struct {
    uint32_t netdev;
    wire::IpAddress local, remote;
    uint32_t arrives_at;
  } const kWays[] = {{kEth1, fake_v4(0, 1), fake_v4(1, 1), kEth2},  // from one netdev to the other one's address
                     {kEth2, fake_v4(1, 1), fake_v4(0, 1), kEth1},
                     {kEth1, fake_v4(0, 1), fake_v4(0, 1), kEth1},
                     {kEth1, fake_v6(1), fake_v6(1), kEth1},
                     {kEth1, fake_link_local(1), fake_link_local(1), kEth1}};
  ASSERT_EQ(bob.ask(cm::BindRequest{{.v4 = false, .v6_only = true, .port = kPort}}).error, 0);
  const cm::Reply v6 = bob.ask(cm::BindRequest{{.v4 = false, .v6_only = true, .port = kPort + 1}});
  ASSERT_EQ(
      bob.ask(cm::ListenRequest{v6.binding, {.service = wire::service_id(wire::PortSpace::kTcp, kPort + 1)}}).error, 0);
  uint32_t qpn = 16;
  for (const auto& way : kWays) {
    const uint16_t port = way.local.is_v4() ? kPort : kPort + 1;
    const cm::Connect connect = End::connection(way.netdev, way.local, way.remote, ++qpn, port);
    const cm::Id active = alice.ask(cm::ConnectRequest{connect}).id;
    const cm::Event request = bob.expect(cm::EventKind::kConnectRequest);
    EXPECT_EQ(request.qp.path.netdev, way.arrives_at);
    EXPECT_EQ(request.qp.path.local, way.remote);
    EXPECT_EQ(request.qp.path.remote, way.local);
    EXPECT_EQ(bob.accept(request.id, qpn + 100).error, 0);
    const cm::Event response = alice.expect(cm::EventKind::kConnectResponse);
    EXPECT_EQ(response.qp.remote_guid, request.qp.path.ca_guid) << "each netdev has its own";
    EXPECT_EQ(request.qp.remote_guid, response.qp.path.ca_guid);
    EXPECT_EQ(alice.ask(cm::ConfirmRequest{active, {}}).error, 0);
    bob.expect(cm::EventKind::kEstablished);
  }
  EXPECT_EQ(server().counters().get(GsiCounter::kDropNotSent), 0u) << "nothing has left";
}

TEST_F(CmOneHost, WhatOneHasIsNotAnothers) {
  End alice(*this, kAlice), bob(*this, kBob);
  const cm::Id listener = alice.listen_at(80);
  EXPECT_EQ(bob.ask(cm::BindRequest{{.port = 80}}).error, EACCES);
  EXPECT_EQ(bob.ask(cm::DestroyRequest{listener}).error, ENOENT);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 9), 0x900)}).error, EPERM);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(1, 1), fake_v4(0, 9))}).error, EADDRNOTAVAIL);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth2, fake_v4(0, 1), fake_v4(0, 9))}).error, EADDRNOTAVAIL);
}

// The notification of the kernel may still wait in its socket.
TEST_F(CmOneHost, AnAddressCanBeUsedAsSoonAsItIsThere) {
  End alice(*this, kAlice);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.address = fake_v4(0, 2), .port = kPort}}).error, EADDRNOTAVAIL);
  auto netdevs = view_->netdevs();
  netdevs.front().addresses.push_back(fake_v4(0, 2));
  view_->change(netdevs);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.address = fake_v4(0, 2), .port = kPort}}).error, 0);
}

TEST_F(CmOneHost, AnswersComeInTheOrderOfRequests) {
  End alice(*this, kAlice);
  for (uint16_t i = 0; i < 200; ++i) alice.say(cm::BindRequest{{.port = static_cast<uint16_t>(2000 + i)}});
  turns(100);
  alice.listen();
  ASSERT_EQ(alice.replies().size(), 200u);
  for (uint16_t i = 0; i < 200; ++i) EXPECT_EQ(alice.replies()[i].port, 2000 + i);
}

TEST_F(CmOneHost, WithLossAllConnect) {
  start(io::FaultSpec{.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .seed = 3});
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  constexpr uint32_t kCount = 200;
  uint32_t responses = 0, established = 0, next_qpn = 0x1000;
  for (uint32_t i = 0; i < kCount; ++i) alice.connect(16 + i);
  // A copy of a REP that comes before confirm() is answered by an MRA, after which the REP waits 67 s, each time.
  for (int steps = 0; steps < 2000 && (responses < kCount || established < kCount); ++steps) {
    run_for(1s);
    alice.listen();
    bob.listen();
    for (const cm::Event& event : std::exchange(bob.events(), {})) {
      established += event.kind == cm::EventKind::kEstablished ? 1 : 0;
      if (event.kind == cm::EventKind::kConnectRequest) {
        EXPECT_EQ(bob.accept(event.id, next_qpn++).error, 0);
      }
    }
    for (const cm::Event& event : std::exchange(alice.events(), {})) {
      EXPECT_EQ(event.kind, cm::EventKind::kConnectResponse);
      EXPECT_EQ(alice.ask(cm::ConfirmRequest{event.id, {}}).error, 0);
      ++responses;
    }
  }
  EXPECT_EQ(responses, kCount);
  EXPECT_EQ(established, kCount);
  for (const GsiCounter counter :
       {GsiCounter::kFaultDropped, GsiCounter::kFaultDuplicated, GsiCounter::kFaultDelayed}) {
    EXPECT_GT(server().counters().get(counter), 20u) << GsiCounters::text(counter);
  }
}

// --- the end of a client ---------------------------------------------------------------------------------------------

struct Death {
  const char* name;
  // Brings Alice, who will die, and Bob to where she dies; Carol listens elsewhere.
  std::function<void(End& alice, End& bob)> until;
  std::vector<cm::EventKind> bob_sees;
};

class CmDeath : public CmServerTest, public testing::WithParamInterface<Death> {};

TEST_P(CmDeath, EndsItsIdsAndNothingElse) {
  End alice(*this, kAlice), bob(*this, kBob), carol(*this, kCarol), dave(*this, cm::ClientId{4});
  ASSERT_EQ(carol.ask(cm::BindRequest{{.port = kPort + 9}}).error, 0);
  const cm::Id others = dave.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 77), 99)}).id;
  GetParam().until(alice, bob);
  bob.listen();
  bob.events().clear();
  alice.die();
  bob.expect(GetParam().bob_sees.empty() ? cm::EventKind::kRejected : GetParam().bob_sees.front());
  EXPECT_EQ(state_of(others), "REQ_SENT") << "somebody else's connection";
  End next(*this, kAlice);
  const cm::Reply bound = next.ask(cm::BindRequest{{.port = kPort}});
  EXPECT_TRUE(bound.error == 0 || bound.error == EADDRNOTAVAIL);
  EXPECT_EQ(next.ask(cm::BindRequest{{.port = kPort + 1}}).error, 0) << "her port is free at once";
  bob.die();
  carol.die();
  dave.die();
  next.die();
  run_for(5min);
  EXPECT_EQ(ids(), 0u) << "nothing is left";
  EXPECT_EQ(server().service().ports().size(), 0u);
}

std::vector<Death> deaths() {
  using cm::EventKind;
  const auto alice_listens = [](End& alice, End& bob) {
    alice.listen_at(kPort + 1);
    return bob.connect(7, kPort + 1);
  };
  return {
      {"ListenerWithARequestUntaken", [=](End& alice, End& bob) { alice_listens(alice, bob); }, {EventKind::kRejected}},
      {"RequestTaken",
       [=](End& alice, End& bob) {
         alice_listens(alice, bob);
         alice.ask(cm::TakeRequest{alice.expect(EventKind::kConnectRequest).id});
       },
       {EventKind::kRejected}},
      {"ReplySent",
       [=](End& alice, End& bob) {
         alice_listens(alice, bob);
         alice.accept(alice.expect(EventKind::kConnectRequest).id);
         bob.expect(EventKind::kConnectResponse);
       },
       {EventKind::kRejected}},
      {"Established",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         establish(alice, bob);
       },
       {EventKind::kDisconnected}},
      {"ReplyReceived",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         alice.connect();
         bob.accept(bob.expect(EventKind::kConnectRequest).id);
         alice.expect(EventKind::kConnectResponse);
       },
       {EventKind::kRejected}},
      {"RequestSent",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         alice.connect();
         bob.expect(EventKind::kConnectRequest);
       },
       {EventKind::kRejected}},
      {"AskedToDisconnect",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         const Connected ids = establish(alice, bob);
         bob.ask(cm::DisconnectRequest{ids.passive, {}});
         alice.expect(EventKind::kDisconnected);
       },
       {EventKind::kDisconnected}},
  };
}

INSTANTIATE_TEST_SUITE_P(Each, CmDeath, testing::ValuesIn(deaths()),
                         [](const testing::TestParamInfo<Death>& death) { return std::string(death.param.name); });

TEST_F(CmServerTest, ASecondConnectionOfAClientEndsTheFirst) {
  End first(*this, kAlice);
  first.listen_at(kPort);
  End second(*this, kAlice);
  EXPECT_TRUE(first.lost());
  EXPECT_EQ(ids(), 0u);
  EXPECT_EQ(second.ask(cm::BindRequest{{.port = kPort}}).error, 0);
}

}  // namespace
}  // namespace uroce::broker

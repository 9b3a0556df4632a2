// SPDX-License-Identifier: BSD-2-Clause
// What clients of the broker's connection manager may do to it and to each other.
#include <array>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/broker/server/cm_server_rig.h"

namespace uroce::broker {
namespace {

using namespace std::chrono_literals;

class CmHostile : public CmServerTest {
 protected:
  // Whoever says this loses the connection and its ids; a bystander has all that it had.
  void expect_lost(const std::function<void(End&)>& say) {
    End mallory(*this, kBob), alice(*this, kAlice);
    mallory.listen_at(kPort);
    const cm::Id others = alice.listen_at(kPort + 1);
    say(mallory);
    EXPECT_TRUE(mallory.lost());
    EXPECT_EQ(ids(), 1u);
    EXPECT_EQ(state_of(others), "LISTEN");
    EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0);
    server().close(kAlice, now);
  }
};

TEST_F(CmHostile, WhatIsNoRequestEndsTheConnection) {
  expect_lost([](End& end) { end.say(std::array<uint8_t, 5>{0xff, 1, 2, 3, 4}); });
  expect_lost([](End& end) { end.say(std::span<const uint8_t>()); });
  expect_lost([](End& end) { end.say(std::vector<uint8_t>(cm::Encoded::kMost + 1)); });
  expect_lost([](End& end) { end.say(std::vector<uint8_t>(100'000)); });
  expect_lost([](End& end) { end.say(cm::encode(cm::Reply{}).bytes()); });
}

TEST_F(CmHostile, DescriptorsThatNobodyAskedForEndTheConnection) {
  const UniqueFd any(eventfd(0, EFD_CLOEXEC));
  expect_lost([&](End& end) {
    end.say(cm::encode(cm::Request(cm::BindRequest{{.port = 9000}})).bytes(), std::array{any.get()});
  });
}

TEST_F(CmHostile, WhoDoesNotReadIsNotListenedTo) {
  End mallory(*this, kBob), alice(*this, kAlice);
  size_t said = 0;
  const cm::Encoded request = cm::encode(cm::Request(cm::BindRequest{{.port = 0}}));
  for (int rounds = 0; rounds < 3000; ++rounds) {
    while (send_message(mallory.fd(), request.bytes()) == 0) ++said;
    turn();
  }
  const size_t bindings = server().service().ports().size();
  EXPECT_LT(bindings, 5000u) << "as many as there is room for answers";
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0) << "others are served";
  for (int rounds = 0; rounds < 10'000 && mallory.replies().size() < said; ++rounds) {
    turn();
    mallory.listen();
  }
  EXPECT_EQ(mallory.replies().size(), said) << "nothing is lost for who reads later";
}

TEST_F(CmHostile, WhoLeavesTooManyEventsLosesTheConnection) {
  start({}, 512);
  End mallory(*this, kBob), alice(*this, kAlice);
  const cm::Id listener = mallory.listen_at(kPort, 100'000);
  uint32_t asked = 0;
  for (; asked < 5000 && !state_of(listener).empty(); ++asked) alice.connect(16 + asked);
  EXPECT_GT(asked, 512u);
  EXPECT_LT(asked, 5000u);
  for (int i = 0; i < 20; ++i) {  // Alice reads
    turn();
    alice.listen();
  }
  mallory.listen();
  EXPECT_TRUE(mallory.lost());
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0);
  EXPECT_EQ(alice.expect(cm::EventKind::kRejected).status, static_cast<int>(wire::RejReason::kConsumer));
}

// The range for port 0 is the kernel's to say, but it is not asked with each request.
TEST_F(CmHostile, PortsWithoutEndReadTheRangeOnceASecond) {
  End mallory(*this, kBob);
  for (int i = 0; i < 100; ++i) {
    const uint16_t port = mallory.ask(cm::BindRequest{{.port = 0}}).port;
    EXPECT_TRUE(port >= 40000 && port <= 40999) << port;
  }
  EXPECT_EQ(ports_read, 1);
  now += CmServer::kPortsStay;
  mallory.ask(cm::BindRequest{{.port = 0}});
  EXPECT_EQ(ports_read, 2);
}

// However much one leaves, a turn ends no more of it than it may, and others are served in it.
TEST_F(CmHostile, WhoLeavesMuchHoldsUpNobody) {
  End mallory(*this, kBob), alice(*this, kAlice);
  const auto in_a_turn = limits.ended_in_a_turn;
  const size_t all = 10 * in_a_turn;
  for (size_t i = 0; i < all; ++i) {
    mallory.say(cm::ListenRequest{cm::kNoBinding, {.service = wire::ServiceId{1ULL << 60 | i}, .ip = false}});
    if (i % 16 == 15) turn(), mallory.listen();
  }
  turns(5);
  ASSERT_EQ(ids(), all);
  mallory.die();
  EXPECT_EQ(ids(), all - in_a_turn);
  End next(*this, kBob);
  next.say(cm::BindRequest{{.port = kPort}});
  alice.say(cm::BindRequest{{.port = kPort + 1}});
  size_t turns_of_all = 0;
  for (size_t before = ids(); before > 0; before = ids(), ++turns_of_all) {
    EXPECT_LE(server().deadline(), now) << "there is more to do";
    turn();
    EXPECT_LE(before - ids(), in_a_turn);
    next.listen();
    alice.listen();
    EXPECT_EQ(next.replies().size(), 1u);
    EXPECT_EQ(alice.replies().size(), 1u) << "in the first turn";
  }
  EXPECT_EQ(turns_of_all, 9u);
  EXPECT_GT(server().deadline(), now);
  EXPECT_TRUE(next.events().empty());
}

// The broker may have nobody left to serve, and end (--linger): the other sides are told nevertheless.
TEST_F(CmHostile, WhatIsLeftOfClientsIsEndedBeforeTheBrokerEnds) {
  limits.ended_in_a_turn = 2;
  start();
  End alice(*this, kAlice);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(alice.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 77), 16 + i)}).error, 0);
  }
  const auto sent = [&] { return server().counters().get(GsiCounter::kDropNotSent); };  // there is no socket
  const uint64_t before = sent();
  alice.die();
  EXPECT_EQ(sent() - before, 2u);
  server().end_rest();
  EXPECT_EQ(sent() - before, 20u);
}

TEST_F(CmHostile, ClientsOfOneUserShareWhatAUserMayHave) {
  limits.ids = 64;
  const cm::ClientId dave{4};
  accounts = {{kAlice, {cm::UserId{1000}, false}},
              {kBob, {cm::UserId{1000}, false}},
              {kCarol, {cm::UserId{1001}, false}},
              {dave, {cm::UserId{0}, true}}};
  start();
  End first(*this, kAlice), second(*this, kBob), other(*this, kCarol), root(*this, dave);
  uint64_t service = 1ULL << 60;
  const auto most = [&](End& end) {
    for (size_t i = 0;; ++i) {
      const int error = end.ask(cm::ListenRequest{cm::kNoBinding, {.service = wire::ServiceId{++service}}}).error;
      if (error == 0) continue;
      EXPECT_EQ(error, ENFILE);
      return i;
    }
  };
  EXPECT_EQ(most(first), 31u);
  EXPECT_EQ(most(second), 0u);
  EXPECT_EQ(most(other), 16u);
  EXPECT_EQ(most(root), 17u);
}

// One who asks without end has no more than his share of a turn.
TEST_F(CmHostile, WhoseUserHasNoTimeIsListenedToLater) {
  accounts[kAlice] = {cm::UserId{1}, true};
  accounts[kBob] = {cm::UserId{2}, false};
  End alice(*this, kAlice), bob(*this, kBob);
  steps_left = 0;
  bob.say(cm::BindRequest{{.port = kPort}});
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort + 1}}).error, 0);
  turns(20);
  bob.listen();
  EXPECT_TRUE(bob.replies().empty());
  EXPECT_EQ(charged[cm::UserId{2}], Duration{});
  steps_left.reset();
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.replies().size(), 1u);
  EXPECT_GT(charged[cm::UserId{2}], Duration{});
}

// To read a message, and to send one, takes as long as there are waiters at his end.
TEST_F(CmHostile, EachMessageIsOnTheAccountOfWhoGetsIt) {
  accounts[kAlice] = {cm::UserId{1}, true};
  accounts[kBob] = {cm::UserId{2}, false};
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  steps_left = 0;
  for (uint32_t i = 0; i < 10; ++i) alice.connect(16 + i);
  bob.listen();
  EXPECT_TRUE(bob.events().empty());
  steps_left = 3;
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.events().size(), 3u);
  EXPECT_EQ(steps_left, 0);
  steps_left.reset();
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.events().size(), 10u);
  for (int i = 0; i < 10; ++i) bob.say(cm::TakeRequest{cm::Id{1}});
  steps_left = 4;
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.replies().size(), 2u) << "a request and its answer are two steps";
}

TEST_F(CmHostile, AFloodIsATurnsWork) {
  End mallory(*this, kBob), alice(*this, kAlice);
  for (int rounds = 0; rounds < 20; ++rounds) {
    while (send_message(mallory.fd(), cm::encode(cm::Request(cm::TakeRequest{cm::Id{1}})).bytes()) == 0) continue;
    alice.say(cm::TakeRequest{cm::Id{1}});
    turn();
    alice.listen();
    EXPECT_EQ(alice.replies().size(), static_cast<size_t>(rounds + 1)) << "in the same turn";
    mallory.listen();
    EXPECT_LE(mallory.replies().size(), CmServer::kRequestsInATurn * static_cast<size_t>(rounds + 1));
  }
}

}  // namespace
}  // namespace uroce::broker

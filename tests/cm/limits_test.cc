// SPDX-License-Identifier: BSD-2-Clause
// What a hostile network or client can make the connection manager remember (cm/types.h: Limits).
#include <algorithm>
#include <gtest/gtest.h>

#include "tests/cm/cost.h"
#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

struct Flood {
  explicit Flood(const Limits& limits, uint32_t backlog = 1024) : b(lab, v4(2), limits) {
    b.listen(kPort, kAlice, backlog);
    lab.filter = [](const Datagram&) { return false; };
  }
  // REQs of as many hosts.
  void requests(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      Peer peer(lab, b, v4(static_cast<uint8_t>(10 + i % 200)));
      ++last;
      peer.send(peer.req(Id{last}, kPort, last), last);
    }
  }
  std::vector<Id> take_all() {
    std::vector<Id> ids;
    for (; !b.quiet(); b.events.pop_front()) {
      if (b.events.front().kind != EventKind::kConnectRequest) continue;
      ids.push_back(b.events.front().id);
      b.cm.take(kAlice, ids.back());
    }
    return ids;
  }

  Lab lab;
  Host b;
  uint32_t last = 0;
};

TEST(LimitsTest, RequestsOfAListenerThatNobodyHasSeen) {
  Flood flood({}, 100);
  flood.requests(1000);
  EXPECT_EQ(flood.b.cm.size(), 101U);
  EXPECT_EQ(flood.b.cm.counters().get(Counter::kDropBacklog), 900U);
}

TEST(LimitsTest, AsManyAsTheLimitEvenIfTheBacklogIsLonger) {
  Flood flood({.half_open_of_listener = 50}, 1'000'000);
  flood.requests(100);
  EXPECT_EQ(flood.b.cm.size(), 51U);
}

// Nobody is kept away by those that stay half open: the oldest one goes.
TEST(LimitsTest, HalfOpenConnectionsOfAListener) {
  Flood flood({.half_open_of_listener = 50, .half_open = 60});
  std::vector<Id> all;
  const auto flood_it = [&] {
    flood.requests(20);
    for (const Id id : flood.take_all()) {
      flood.b.accept(id);
      all.push_back(id);
    }
  };
  for (int i = 0; i < 10; ++i) flood_it();
  ASSERT_EQ(all.size(), 200u);
  EXPECT_EQ(flood.b.in_state("REP_SENT").size(), 50u);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(flood.b.state(all[i]), i < 150 ? "TIMEWAIT" : "REP_SENT");
  EXPECT_EQ(flood.b.cm.counters().get(Counter::kGaveWay), 150u);
  for (const Sent& sent : flood.b.sent) EXPECT_EQ(sent.kind(), wire::CmAttribute::kRep) << "nobody else is told";
  // Who answers is connected.
  Peer peer(flood.lab, flood.b, v4(9));
  peer.send(peer.req(Id{7}, kPort, 77), 7);
  const Id id = flood.take_all().at(0);
  flood.b.accept(id);
  peer.send(Peer::rtu(Id{7}, id), 7);
  EXPECT_EQ(flood.b.expect(EventKind::kEstablished).id, id);
}

TEST(LimitsTest, HalfOpenConnectionsOfAllListeners) {
  Flood flood({.half_open_of_listener = 50, .half_open = 60});
  flood.requests(50);
  const std::vector<Id> first = flood.take_all();
  flood.b.listen(kPort + 1, kAlice, 100);
  Peer peer(flood.lab, flood.b, v4(9));
  for (uint32_t i = 1; i <= 20; ++i) peer.send(peer.req(Id{i}, kPort + 1, i), i);
  EXPECT_EQ(flood.take_all().size(), 20U);
  EXPECT_EQ(flood.b.in_state("REQ_RECEIVED").size(), 60u);
  EXPECT_EQ(flood.b.state(first.front()), "REQ_RECEIVED") << "its own oldest ones went";
  flood.b.listen(kPort + 2);
  peer.send(peer.req(Id{30}, kPort + 2, 30), 30);
  const Event gave_way = flood.b.expect(EventKind::kRejected);
  EXPECT_EQ(gave_way.id, first.front()) << "it has none: of all";
  EXPECT_EQ(gave_way.status, static_cast<int>(wire::RejReason::kTimeout));
  flood.b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(flood.b.accept(first.front()), EINVAL);
}

TEST(LimitsTest, IdsOfAClientAndOfAll) {
  Lab lab;
  Host a(lab, v4(1), {.ids = 30, .ids_of_client = 20}), b(lab, v4(2));
  const auto connect = [&](ClientId client) { return a.cm.connect(client, a.connection_to(b, kPort), lab.now).error; };
  for (int i = 0; i < 20; ++i) EXPECT_EQ(connect(kAlice), 0);
  EXPECT_EQ(connect(kAlice), ENFILE);
  EXPECT_EQ(a.cm.listen(kAlice, {}).error, ENFILE);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(connect(kBob), 0);
  EXPECT_EQ(connect(kBob), ENFILE);
  EXPECT_EQ(a.cm.listen(kBob, {}).error, ENFILE);
  EXPECT_EQ(a.cm.size(), 30U);
}

TEST(LimitsTest, RequestsCountForTheListenersClient) {
  Flood flood({.ids_of_client = 10});
  flood.requests(20);
  EXPECT_EQ(flood.b.cm.size(), 10U);
  EXPECT_EQ(flood.b.cm.counters().get(Counter::kDropLimit), 11U);
}

TEST(LimitsTest, EndedConnections) {
  Flood flood({.ended = 30});
  for (int i = 0; i < 100; ++i) {
    flood.requests(1);
    for (const Id id : flood.take_all()) flood.b.destroy(id);
  }
  EXPECT_EQ(flood.b.cm.size(), 31U);
  EXPECT_EQ(flood.b.cm.counters().get(Counter::kEvicted), 70U);
  flood.lab.run_dry();
  EXPECT_EQ(flood.b.cm.size(), 1U);
}

TEST(LimitsTest, AnsweredSidrRequests) {
  Flood flood({.ended = 30});
  flood.b.listen_datagrams(kPort);
  for (uint32_t i = 1; i <= 100; ++i) {
    Peer peer(flood.lab, flood.b, v4(9));
    wire::SidrReq req;
    req.request_id = Id{i};
    req.service_id = wire::service_id(wire::PortSpace::kUdp, kPort);
    wire::CmaHeader{.v4 = true, .source_port = 1, .source = peer.address, .destination = flood.b.address}.emit(
        req.private_data.data());
    peer.send(req, i);
    for (const Id id : flood.take_all()) {
      EXPECT_EQ(flood.b.accept(id), 0);
      EXPECT_EQ(flood.b.destroy(id), 0);
    }
  }
  EXPECT_EQ(flood.b.cm.size(), 32U);
}

TEST(LimitsTest, ClientsThatDieWithManyConnectionsToHostsThatAreGone) {
  Lab lab;
  Host a(lab, v4(1), {.abandoned = 10}), b(lab, v4(2));
  b.listen(kPort);
  for (int i = 0; i < 40; ++i) establish(lab, a, b, kPort);
  lab.filter = [](const Datagram&) { return false; };
  a.sent_kinds();
  a.cm.end_client(kAlice, lab.now);
  const std::string sent = a.sent_kinds();
  EXPECT_EQ(std::count(sent.begin(), sent.end(), 'Q'), 40) << "one DREQ at least for each";
  lab.run_for(3s);
  EXPECT_EQ(a.cm.size(), 10U) << "for these it is repeated";
  lab.run_dry();
  EXPECT_EQ(a.cm.size(), 0U);
  EXPECT_TRUE(a.quiet());
}

TEST(LimitsTest, AClientThatDiesHearsNothingOfWhatItsOwnIdsPushOut) {
  Lab lab;
  Host a(lab, v4(1), {.ended = 3, .abandoned = 0}), b(lab, v4(2)), c(lab, v4(3));
  b.listen(kPort);
  c.listen(kPort);
  const auto end = [&](Host& peer, const Pair& ids) {
    EXPECT_EQ(peer.disconnect(ids.passive), 0);
    lab.settle();
    EXPECT_EQ(a.expect(EventKind::kDisconnected).id, ids.active);
    EXPECT_EQ(a.disconnect(ids.active), 0);
    EXPECT_EQ(a.state(ids.active), "TIMEWAIT");
  };
  std::vector<Pair> all;
  for (int i = 0; i < 8; ++i) all.push_back(establish(lab, a, b, kPort));
  // They go in the order of their ids: those that are remembered go last.
  std::sort(all.begin(), all.end(), [](const Pair& one, const Pair& other) { return one.active < other.active; });
  for (size_t i = 5; i < 8; ++i) end(b, all[i]);
  a.cm.end_client(kAlice, lab.now);
  EXPECT_EQ(a.cm.counters().get(Counter::kEvicted), 5U);
  EXPECT_TRUE(a.quiet());
  // Who has the same number later is told everything again.
  end(c, establish(lab, a, c, kPort));
  lab.run_for(10min);
  a.expect(EventKind::kTimewaitExit);
}

// --- users -----------------------------------------------------------------------------------------------------------

TEST(LimitsTest, AUserHasNoMoreIdsThanOthersLeave) {
  Lab lab;
  Host a(lab, v4(1), {.ids = 64}), b(lab, v4(2));
  const ClientId carol{3}, root{4};
  a.accounts = {{kAlice, {UserId{1}, false}}, {kBob, {UserId{1}, false}}, {carol, {UserId{2}, false}}, {root, {}}};
  const auto most = [&](ClientId client) {
    for (size_t i = 0;; ++i) {
      const int error = a.cm.connect(client, a.connection_to(b, kPort), lab.now).error;
      if (error == 0) continue;
      EXPECT_EQ(error, ENFILE);
      return i;
    }
  };
  EXPECT_EQ(most(kAlice), 31u) << "half of 64, but for the 2 that are kept";
  EXPECT_EQ(most(kBob), 0u) << "another client of the same user";
  EXPECT_EQ(a.cm.listen(kBob, {}).error, ENFILE);
  EXPECT_EQ(most(carol), 16u);
  EXPECT_EQ(most(root), 17u);
  a.cm.end_client(kAlice, lab.now);
  EXPECT_EQ(most(kBob), 0u) << "hers are not over";
  lab.run_dry();
  EXPECT_EQ(most(kBob), 15u) << "half of what the other two leave";
}

TEST(LimitsTest, RequestsCountForTheListenersUser) {
  Flood flood({.ids = 64});
  flood.b.accounts = {{kAlice, {UserId{1}, false}}};
  flood.requests(100);
  EXPECT_EQ(flood.b.cm.size(), 1u + 31u) << "the listener was made before";
}

// --- the end of many -------------------------------------------------------------------------------------------------

TEST(LimitsTest, ManyListenersEndWithoutALookAtAllIdsForEach) {
  const auto run = [](int count, auto&& measure) {
    Lab lab;
    Host a(lab, v4(1), {.ended_in_a_turn = 1'000'000});
    for (int i = 0; i < count; ++i) a.cm.listen(kAlice, {.service = wire::ServiceId{1ULL << 60 | uint64_t(i)}});
    measure([&] { a.cm.end_client(kAlice, lab.now); });
    EXPECT_EQ(a.cm.size(), 0u);
  };
  EXPECT_LT(growth(run, 2000), kMostGrowth);
}

struct Slices : testing::Test {
  static constexpr uint32_t kInATurn = 10;
  Lab lab;
  Host a{lab, v4(1), {.ended_in_a_turn = kInATurn, .expired_in_a_turn = kInATurn}}, b{lab, v4(2)};

  // Turns until all is done, each of which does no more than it may.
  int turns() {
    int count = 0;
    for (; a.cm.is_ending(); ++count) {
      EXPECT_LE(a.cm.deadline(), lab.now) << "the owner is to look at once";
      const size_t before = a.cm.size(), sent = a.sent.size();
      a.cm.on_timer(lab.now);
      EXPECT_LE(before - a.cm.size(), kInATurn);
      EXPECT_LE(a.sent.size() - sent, kInATurn);
    }
    return count;
  }
};

TEST_F(Slices, AClientThatLeavesEndsOverSeveralTurns) {
  lab.filter = [](const Datagram&) { return false; };
  for (int i = 0; i < 95; ++i) a.connect(b, kPort);
  for (uint16_t i = 0; i < 5; ++i) a.listen(static_cast<uint16_t>(kPort + i));
  const size_t sent = a.sent.size();
  a.cm.end_client(kAlice, lab.now);
  EXPECT_LE(a.sent.size() - sent, kInATurn);
  EXPECT_EQ(turns(), 9);
  EXPECT_EQ(a.sent.size() - sent, 95u) << "each is told of";
  lab.run_dry();
  EXPECT_EQ(a.cm.size(), 0u);
}

// A user can have them all expire at one moment.
TEST_F(Slices, WhatIsToBeSentAgainAtOnceIsSentInSeveralTurns) {
  lab.filter = [](const Datagram&) { return false; };
  for (size_t i = 0; i < 95; ++i) a.connect(b, kPort);
  const size_t sent = a.sent.size();
  lab.now = a.cm.deadline() + 1ms;
  int turns = 0;
  for (; a.cm.deadline() <= lab.now; ++turns) {
    const size_t before = a.sent.size();
    a.cm.on_timer(lab.now);
    EXPECT_LE(a.sent.size() - before, kInATurn);
  }
  EXPECT_EQ(a.sent.size() - sent, 95u);
  EXPECT_EQ(turns, 10);
}

TEST_F(Slices, SeveralThatLeaveShareATurn) {
  const ClientId carol{3};
  for (const ClientId client : {kAlice, kBob, carol}) {
    for (uint16_t i = 0; i < 10; ++i) a.listen(static_cast<uint16_t>(i + 100 * static_cast<uint64_t>(client)), client);
  }
  const size_t before = a.cm.size();
  for (const ClientId client : {kAlice, kBob, carol}) a.cm.end_client(client, lab.now);
  EXPECT_EQ(before - a.cm.size(), kInATurn);
  EXPECT_EQ(turns(), 2);
}

TEST_F(Slices, WhoHasItsNumberNextSeesNothingOfIt) {
  b.listen(kPort);
  std::vector<Id> old;
  for (int i = 0; i < 30; ++i) old.push_back(establish(lab, a, b, kPort).active);
  old.push_back(a.listen(kPort));
  a.cm.end_client(kAlice, lab.now);
  ASSERT_TRUE(a.cm.is_ending());
  size_t left = 0;
  a.cm.list([&](const Listing& listing) { left += listing.abandoned ? 1 : 0; });
  EXPECT_EQ(left, a.cm.size()) << "nobody has them";
  for (const Id id : old) {
    EXPECT_EQ(a.disconnect(id), ENOENT);
    EXPECT_EQ(a.destroy(id), ENOENT);
  }
  const Id own = a.connect(b, kPort);
  lab.filter = [](const Datagram&) { return false; };
  for (const Id id : old) {  // the other side's, to those whose turn has not come
    wire::Dreq dreq;
    a.cm.list([&](const Listing& l) {
      if (l.id == id) dreq = {.local_id = l.remote_id, .remote_id = id, .remote_qpn = l.local_qpn};
    });
    Peer(lab, a, b.address).send(dreq, 9);
  }
  turns();
  EXPECT_TRUE(a.quiet()) << "no event of what another one had";
  EXPECT_EQ(a.state(own), "REQ_SENT");
}

// Whoever comes meanwhile is not refused: the service may be somebody else's in a moment.
TEST_F(Slices, AListenerThatIsToEndTakesNothing) {
  for (uint16_t i = 0; i < 30; ++i) a.listen(static_cast<uint16_t>(kPort + i));
  a.cm.end_client(kAlice, lab.now);
  const std::vector<Id> left = a.in_state("LISTEN");
  ASSERT_EQ(left.size(), 20u);
  for (uint16_t i = 0; i < 30; ++i) b.connect(a, static_cast<uint16_t>(kPort + i));
  Peer peer(lab, a, v4(9));
  for (uint16_t i = 0; i < 30; ++i) peer.send(peer.req(Id{1U + i}, static_cast<uint16_t>(kPort + i), i));
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(a.sent.size(), 0u);
  EXPECT_EQ(a.cm.counters().get(Counter::kDropLimit), 20u);
  turns();
  a.listen(kPort + 29, kBob);
  lab.settle();
  a.expect(EventKind::kConnectRequest);
}

TEST_F(Slices, RequestsOfAListenerThatEnds) {
  const Id listener = a.listen(kPort, kAlice, 1000);
  Peer peer(lab, a, v4(9));
  std::vector<Id> taken;
  for (uint32_t i = 1; i <= 65; ++i) {
    peer.send(peer.req(Id{i}, kPort, i), i);
    const Id id = a.expect(EventKind::kConnectRequest).id;
    if (i <= 10) a.cm.take(kAlice, id), taken.push_back(id);
  }
  EXPECT_EQ(a.destroy(listener), 0);
  EXPECT_EQ(a.sent.size(), kInATurn);
  EXPECT_EQ(turns(), 5);
  EXPECT_EQ(a.sent.size(), 55u) << "those that the application knows of stay";
  for (const Id id : taken) EXPECT_EQ(a.accept(id), 0);
}

// --- answers to who may be somebody else -----------------------------------------------------------------------------

struct Unproven : testing::Test {
  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)};
  Peer peer{lab, b, v4(9)};
  Id listener = b.listen(kPort);

  // A REQ that asks for as many and as early REPs as it can, which the application accepts.
  Id request(uint32_t number) {
    wire::Req req = peer.req(Id{number}, kPort, number);
    req.local_response_timeout = 0;
    peer.send(req, number);
    const Id id = b.expect(EventKind::kConnectRequest).id;
    EXPECT_EQ(b.accept(id), 0);
    return id;
  }
};

TEST_F(Unproven, ThreeRepsAtMostAndNotFast) {
  request(1);
  lab.run_for(10min);
  b.expect(EventKind::kUnreachable);
  EXPECT_EQ(b.sent_kinds(), "REP REP REP REJ");
  for (size_t i = 1; i < b.sent.size(); ++i) EXPECT_GE(b.sent[i].at - b.sent[i - 1].at, 1s);
}

TEST_F(Unproven, WhoHasAnsweredGetsAsManyAsItAsksFor) {
  peer.send(Peer::rtu(Id{1}, request(1)), 1);
  b.expect(EventKind::kEstablished);
  b.sent_kinds();
  request(2);
  lab.run_for(16 * 256ms);
  const std::string kinds = b.sent_kinds();
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 'P'), 16);
}

TEST_F(Unproven, ItStaysLittleForOthersThanWhoHasAnswered) {
  peer.send(Peer::rtu(Id{1}, request(1)), 1);
  Peer other(lab, b, v4(10));
  other.guid = wire::Guid{10};
  other.send(other.req(Id{1}, kPort, 1), 1);
  b.expect(EventKind::kEstablished);
  b.accept(b.expect(EventKind::kConnectRequest).id);
  b.sent_kinds();
  lab.run_for(10min);
  EXPECT_EQ(b.sent_kinds(), "REP REP REJ");
}

// One answer for each of its REQs, however many are lost.
TEST_F(Unproven, WhoAsksAgainIsAnsweredAgain) {
  request(1);
  lab.run_for(8s);
  EXPECT_EQ(b.sent_kinds(), "REP REP REP");
  wire::Req req = peer.req(Id{1}, kPort, 1);
  req.local_response_timeout = 0;
  peer.send(req, 1);
  peer.send(req, 1);
  EXPECT_EQ(b.sent_kinds(), "REP") << "not to a copy that comes at once";
  lab.run_for(3s);
  EXPECT_EQ(b.sent_kinds(), "");
}

TEST_F(Unproven, ALossyNetworkConnectsAllTheSame) {
  lab.filter = [&](const Datagram& datagram) { return datagram.source != b.address || lab.now > Time(20s); };
  const Id active = a.connect(b, kPort);
  lab.run_for(100ms);
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  b.accept(passive);
  lab.run_for(30s);
  ASSERT_EQ(a.expect(EventKind::kConnectResponse).id, active);
  a.confirm(active);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kEstablished).id, passive);
}

TEST(LimitsTest, IdsAreNewEvenIfTheRandomNumbersAreNot) {
  struct Nowhere final : Output {
    void send(const Datagram&) override {}
    void on_event(const Event&) override {}
  } nowhere;
  ConnectionManager cm(
      {}, [] { return 0xffffffffU; }, nowhere);
  std::set<Id> ids;
  for (uint16_t port = 1; port <= 5; ++port) {
    ids.insert(cm.listen(kAlice, {.service = wire::ServiceId{port}}).id);
  }
  EXPECT_EQ(ids.size(), 5U);
  EXPECT_EQ(ids.count(kNoId), 0U);
}

}  // namespace
}  // namespace uroce::cm::test

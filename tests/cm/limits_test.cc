// SPDX-License-Identifier: BSD-2-Clause
// What a hostile network or client can make the connection manager remember (cm/types.h: Limits).
#include <algorithm>
#include <gtest/gtest.h>

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

TEST(LimitsTest, HalfOpenConnectionsOfAListener) {
  Flood flood({.half_open_of_listener = 50, .half_open = 60});
  for (int i = 0; i < 10; ++i) {
    flood.requests(20);
    for (const Id id : flood.take_all()) flood.b.accept(id);
  }
  EXPECT_EQ(flood.b.cm.size(), 51U);
  EXPECT_EQ(flood.b.cm.counters().get(Counter::kDropLimit), 150U);
  flood.b.listen(kPort + 1);
  Peer peer(flood.lab, flood.b, v4(9));
  for (uint32_t i = 1; i <= 20; ++i) peer.send(peer.req(Id{i}, kPort + 1, i), i);
  EXPECT_EQ(flood.take_all().size(), 10U) << "60 of all listeners";
  flood.lab.run_for(10min);
  flood.requests(20);
  EXPECT_EQ(flood.take_all().size(), 20U) << "nobody answered the REPs, and there is room again";
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

// SPDX-License-Identifier: BSD-2-Clause
// Which listener a request is for.
#include <gtest/gtest.h>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

const wire::ServiceId kService = wire::service_id(wire::PortSpace::kTcp, kPort);

struct ListenersTest : testing::Test {
  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)}, a6{lab, v6(1)}, b6{lab, v6(2)};

  Id listen(Host& host, const Listen& listen) {
    const Opened opened = host.cm.listen(kAlice, listen);
    EXPECT_EQ(opened.error, 0);
    return opened.id;
  }
  // The listener that a connection finds, or the reason for which there is none.
  static Id found(Lab& lab, Host& from, Host& to, const Connect& connect) {
    from.connect(connect);
    lab.settle();
    if (!to.quiet()) return to.expect(EventKind::kConnectRequest).listener;
    return Id(static_cast<uint32_t>(from.expect(EventKind::kRejected).status));
  }
  Id found(Host& from, Host& to) { return found(lab, from, to, from.connection_to(to, kPort)); }
  static constexpr Id kRefused{8};
};

TEST_F(ListenersTest, NobodyListens) {
  EXPECT_EQ(found(a, b), kRefused);
  b.listen(kPort + 1);
  EXPECT_EQ(found(a, b), kRefused);
  const auto& rej = b.sent.back().as<wire::Rej>();
  EXPECT_EQ(rej.local_id, kNoId);
  EXPECT_EQ(rej.remote_id, a.sent.back().as<wire::Req>().local_id);
  EXPECT_EQ(rej.message, wire::CmAnswered::kReq);
}

TEST_F(ListenersTest, TheMoreSpecificAddressWins) {
  const Id any = listen(b, {.service = kService});
  EXPECT_EQ(found(a, b), any);
  const Id here = listen(b, {.service = kService, .address = b.address});
  listen(b, {.service = kService, .address = v4(77)});
  EXPECT_EQ(found(a, b), here);
  b.destroy(here);
  EXPECT_EQ(found(a, b), any);
}

TEST_F(ListenersTest, OtherAddressesAreOfNoUse) {
  listen(b, {.service = kService, .address = v4(77)});
  EXPECT_EQ(found(a, b), kRefused);
  Connect connect = a.connection_to(b, kPort);
  connect.names->destination = v4(77);
  EXPECT_EQ(found(lab, a, b, connect), kRefused) << "the datagram did not go there";
}

TEST_F(ListenersTest, WildcardsOfOneFamilyOrBoth) {
  Host b4(lab, v4(3));
  const Id both = listen(b, {.service = kService});
  EXPECT_EQ(found(a, b), both);
  listen(b4, {.service = kService, .takes_v4 = false});
  EXPECT_EQ(found(a, b4), kRefused);
  listen(b6, {.service = kService, .takes_v6 = false});
  EXPECT_EQ(found(a6, b6), kRefused);
  const Id six = listen(b6, {.service = kService, .takes_v4 = false});
  EXPECT_EQ(found(a6, b6), six);
}

TEST_F(ListenersTest, OfOneNetdev) {
  const uint32_t netdev = static_cast<uint32_t>(b.guid());
  listen(b, {.service = kService, .netdev = netdev + 1});
  EXPECT_EQ(found(a, b), kRefused);
  const Id any = listen(b, {.service = kService});
  EXPECT_EQ(found(a, b), any);
  const Id here = listen(b, {.service = kService, .netdev = netdev});
  EXPECT_EQ(found(a, b), here);
}

TEST_F(ListenersTest, RangesOfServiceIds) {
  const Id some = listen(b, {.service = wire::ServiceId{0x013f0100}, .service_mask = ~uint64_t{0xff}, .ip = false});
  Connect connect = a.connection_to(b, kPort);
  connect.names.reset();
  connect.service = wire::ServiceId{0x013f01ab};
  EXPECT_EQ(found(lab, a, b, connect), some);
  const Id one = listen(b, {.service = connect.service, .ip = false, .address = b.address});
  connect.parameters.qpn = wire::Qpn(0x999);
  EXPECT_EQ(found(lab, a, b, connect), one);
  connect.service = wire::ServiceId{0x013f0201};
  connect.parameters.qpn = wire::Qpn(0x99a);
  EXPECT_EQ(found(lab, a, b, connect), kRefused);
}

TEST_F(ListenersTest, ACmaHeaderOfAnotherVersion) {
  listen(b, {.service = kService});
  Peer peer(lab, b, a.address);
  wire::Req req = peer.req(Id{5}, kPort);
  req.private_data[0] = 1;
  peer.send(req);
  EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kConsumer);
  req.service_id = wire::ServiceId{1};
  peer.send(req);
  EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kServiceId);
  wire::SidrReq sidr;
  sidr.request_id = Id{5};
  sidr.service_id = kService;
  peer.send(sidr);
  EXPECT_EQ(b.sent.back().as<wire::SidrRep>().status, wire::SidrStatus::kReject);
  EXPECT_TRUE(b.quiet());
}

TEST_F(ListenersTest, TheSamePlaceTwice) {
  const Listen here{.service = kService, .address = b.address};
  const Id first = listen(b, here);
  EXPECT_EQ(b.cm.listen(kBob, here).error, EADDRINUSE);
  EXPECT_EQ(b.cm.listen(kBob, here).id, kNoId);
  listen(b, {.service = kService});
  EXPECT_EQ(b.cm.listen(kBob, {.service = kService, .takes_v6 = false}).error, EADDRINUSE);
  b.destroy(first);
  EXPECT_EQ(b.cm.listen(kBob, here).error, 0);
}

// A request looks at all masks, and at all listeners for its service.
TEST_F(ListenersTest, ListenersForSeveralServicesAreFew) {
  Host c(lab, v4(3), {.masks = 32, .masks_of_client = 8});
  uint32_t last = 0;
  const auto most = [&](ClientId client, const Account& account) {
    c.accounts[client] = account;
    for (uint32_t i = 0;; ++i) {
      const int error = c.cm.listen(client, {.service = wire::ServiceId{1}, .service_mask = ~uint64_t{++last}}).error;
      if (error == 0) continue;
      EXPECT_EQ(error, ENOSPC);
      return i;
    }
  };
  const Account mallory{UserId{1}, false};
  const Id own = c.cm.listen(kAlice, {.service = wire::ServiceId{2}, .service_mask = ~uint64_t{0xff00}}).id;
  EXPECT_EQ(most(kAlice, mallory), 7u) << "8 of a client";
  EXPECT_EQ(most(kBob, mallory), 8u) << "and as many of a user as others can have";
  EXPECT_EQ(most(ClientId{3}, mallory), 0u);
  EXPECT_EQ(most(ClientId{4}, {UserId{2}, false}), 8u);
  EXPECT_EQ(most(ClientId{5}, {}), 8u) << "all that there is";
  EXPECT_EQ(most(ClientId{6}, {}), 0u);
  EXPECT_EQ(c.cm.listen(kAlice, {.service = wire::ServiceId{3}}).error, 0) << "for one service";
  EXPECT_EQ(c.cm.destroy(kAlice, own, lab.now), 0);
  EXPECT_EQ(most(ClientId{6}, {}), 1u);
}

TEST_F(ListenersTest, PlacesOfAServiceAreFew) {
  const uint32_t most = Limits{}.places;
  for (uint32_t i = 1; i <= most; ++i) EXPECT_EQ(b.cm.listen(kAlice, {.service = kService, .netdev = i}).error, 0);
  EXPECT_EQ(b.cm.listen(kBob, {.service = kService, .netdev = most + 1}).error, ENOSPC);
  EXPECT_EQ(b.cm.listen(kBob, {.service = kService, .netdev = 1}).error, EADDRINUSE);
  EXPECT_EQ(b.cm.listen(kBob, {.service = wire::ServiceId{5}, .netdev = most + 1}).error, 0);
}

TEST_F(ListenersTest, TheBacklogIsOfRequestsThatNobodyHasSeen) {
  b.listen(kPort, kAlice, 2);
  std::vector<Id> ids;
  for (int i = 0; i < 3; ++i) a.connect(b, kPort);
  lab.settle();
  for (int i = 0; i < 2; ++i) ids.push_back(b.expect(EventKind::kConnectRequest).id);
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.sent_kinds(), "") << "no REJ: the other side tries again";
  EXPECT_EQ(b.cm.counters().get(Counter::kDropBacklog), 1U);
  EXPECT_EQ(b.cm.take(kAlice, ids[0]), 0);
  EXPECT_EQ(b.cm.take(kAlice, ids[0]), 0) << "once is enough";
  lab.run_for(7s);
  ids.push_back(b.expect(EventKind::kConnectRequest).id);
  a.connect(b, kPort);
  lab.settle();
  EXPECT_TRUE(b.quiet());
  b.accept(ids[1]);
  lab.run_for(7s);
  b.expect(EventKind::kConnectRequest);
}

TEST_F(ListenersTest, EveryWayFreesThePlace) {
  b.listen(kPort, kAlice, 1);
  for (int way = 0; way < 3; ++way) {
    a.connect(b, kPort);
    lab.settle();
    const Id id = b.expect(EventKind::kConnectRequest).id;
    if (way == 0) b.accept(id);
    if (way == 1) b.reject(id);
    if (way == 2) b.destroy(id);
  }
  a.connect(b, kPort);
  lab.settle();
  b.expect(EventKind::kConnectRequest);
}

// --- listeners that come back (waiting_requests.h)
// --------------------------------------------------------------------

TEST_F(ListenersTest, WhoComesBetweenTwoListenersFindsTheSecond) {
  for (const bool datagrams : {false, true}) {
    const Transport transport = datagrams ? Transport::kUd : Transport::kRc;
    b.destroy(datagrams ? b.listen_datagrams(kPort) : b.listen(kPort));
    a.connect(a.connection_to(b, kPort, transport));
    lab.run_for(100ms);
    EXPECT_TRUE(a.quiet());
    const Id second = datagrams ? b.listen_datagrams(kPort) : b.listen(kPort);
    EXPECT_LE(b.cm.deadline(), lab.now) << "the owner is to look at once";
    lab.run_for(1ms);
    EXPECT_EQ(b.expect(EventKind::kConnectRequest).listener, second);
    b.destroy(second);
    lab.run_for(10s);
    while (!a.quiet()) a.events.pop_front();
  }
}

// perftest's QPs of datagrams come after a control connection.
TEST_F(ListenersTest, TheSecondIsOfAnotherPortSpace) {
  b.destroy(b.listen(kPort));
  a.connect(a.connection_to(b, kPort, Transport::kUd));
  lab.run_for(100ms);
  const Id second = b.listen_datagrams(kPort);
  lab.run_for(1ms);
  EXPECT_EQ(b.expect(EventKind::kConnectRequest).listener, second);
}

TEST_F(ListenersTest, NobodyComesBack) {
  b.destroy(b.listen(kPort));
  a.connect(b, kPort);
  lab.run_for(WaitingRequests::kPatience - 10ms);
  EXPECT_TRUE(a.quiet());
  lab.run_for(20ms);
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 8);
  EXPECT_EQ(b.sent.size(), 1u);
}

TEST_F(ListenersTest, AListenerThatEndedLongAgoIsForgotten) {
  b.destroy(b.listen(kPort));
  lab.run_for(WaitingRequests::kMemory + 1ms);
  EXPECT_EQ(found(a, b), kRefused);
}

// Somebody comes, but for another address.
TEST_F(ListenersTest, AnotherListenerIsOfNoUseToWhoWaits) {
  b.destroy(b.listen(kPort));
  a.connect(b, kPort);
  lab.run_for(100ms);
  listen(b, {.service = kService, .address = v4(77)});
  lab.run_for(WaitingRequests::kPatience);
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 8);
  EXPECT_TRUE(b.quiet());
}

// More than can wait are refused at once; those that wait are each answered once.
TEST_F(ListenersTest, TooManyWait) {
  b.destroy(b.listen(kPort));
  const size_t all = Limits{}.waiting_requests + 20;
  for (size_t i = 0; i < all; ++i) a.connect(b, kPort);
  lab.run_for(100ms);
  EXPECT_EQ(a.events.size(), 20u);
  lab.run_for(WaitingRequests::kPatience);
  EXPECT_EQ(a.events.size(), all);
  EXPECT_EQ(b.sent.size(), all);
}

// The same request again, and one that its sender has given up meanwhile.
TEST_F(ListenersTest, CopiesOfWhatWaits) {
  b.destroy(b.listen(kPort));
  lab.faults.duplicate = 1;
  const Id id = a.connect(b, kPort);
  lab.run_for(100ms);
  b.listen(kPort);
  lab.run_for(100ms);
  b.expect(EventKind::kConnectRequest);
  EXPECT_TRUE(b.quiet());
  a.destroy(id);
}

}  // namespace
}  // namespace uroce::cm::test

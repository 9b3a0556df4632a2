// The tables of cm.md "States" and "Timers", row by row.
#include <gtest/gtest.h>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

struct States : testing::Test {
  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)};
  Id listener = b.listen(kPort);

  // Loses what `from` sends of this kind from now on.
  void lose(const Host& from, wire::CmAttribute kind) {
    lab.filter = [&from, kind](const Datagram& datagram) {
      wire::CmMad mad;
      wire::parse_cm(datagram.mad, mad);
      return datagram.source != from.address || wire::attribute_of(mad.message) != kind;
    };
  }
  void lose_all() {
    lab.filter = [](const Datagram&) { return false; };
  }
  void lose_none() { lab.filter = nullptr; }

  // A REQ has arrived at b and waits for accept().
  Pair request() {
    const Id active = a.connect(b, kPort);
    lab.settle();
    return {active, b.expect(EventKind::kConnectRequest).id};
  }
  // The REP has arrived at a and waits for confirm().
  Pair response() {
    const Pair ids = request();
    EXPECT_EQ(b.accept(ids.passive), 0);
    lab.settle();
    EXPECT_EQ(a.expect(EventKind::kConnectResponse).id, ids.active);
    return ids;
  }
  Pair established() {
    const Pair ids = establish(lab, a, b, kPort);
    a.sent_kinds();
    b.sent_kinds();
    return ids;
  }
  // When the messages of this kind were sent, from the first one on.
  static std::vector<Duration> times(const Host& host, wire::CmAttribute kind) {
    std::vector<Duration> at;
    for (const Sent& sent : host.sent) {
      if (sent.kind() == kind) at.push_back(sent.at.time_since_epoch());
    }
    for (size_t i = at.size(); i-- > 0;) at[i] -= at[0];
    return at;
  }
  static std::vector<Duration> sixteen(Duration apart) {
    std::vector<Duration> at;
    for (int i = 0; i < 16; ++i) at.push_back(i * apart);
    return at;
  }
};

// --- timers ----------------------------------------------------------------------------------------------------------

using Timers = States;

TEST_F(Timers, ReqSixteenTimesThenUnreachable) {
  lose_all();
  const Id id = a.connect(b, kPort);
  const Time start = lab.now;
  lab.run_for(98303ms);
  EXPECT_TRUE(a.quiet());
  lab.run_for(1ms);
  const Event event = a.expect(EventKind::kUnreachable);
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(event.status, -ETIMEDOUT);
  EXPECT_EQ(lab.now - start, 16 * 6144ms);
  EXPECT_EQ(times(a, wire::CmAttribute::kReq), sixteen(6144ms));
  for (const Sent& sent : a.sent) {
    if (sent.kind() != wire::CmAttribute::kReq) continue;
    EXPECT_EQ(sent.datagram.mad, a.sent[0].datagram.mad) << "the same bytes";
  }
  EXPECT_EQ(a.sent.back().kind(), wire::CmAttribute::kRej) << "for whoever has an id for it";
  EXPECT_EQ(a.sent.back().as<wire::Rej>().reason, wire::RejReason::kTimeout);
  lab.run_dry();
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(a.destroy(id), 0);
  EXPECT_EQ(a.cm.size(), 0U);
}

TEST_F(Timers, RepSixteenTimesThenUnreachable) {
  const Pair ids = request();
  lose_all();
  const Time start = lab.now;
  b.accept(ids.passive);
  lab.run_for(16 * 4096ms - 1ms);
  EXPECT_TRUE(b.quiet());
  lab.run_for(1ms);
  EXPECT_EQ(b.expect(EventKind::kUnreachable).status, -ETIMEDOUT);
  EXPECT_EQ(lab.now - start, 65536ms);
  EXPECT_EQ(times(b, wire::CmAttribute::kRep), sixteen(4096ms));
  EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kTimeout);
}

TEST_F(Timers, DreqOfTheActiveSide) {
  const Pair ids = established();
  lose_all();
  a.disconnect(ids.active);
  lab.run_for(16 * 6144ms - 1ms);
  EXPECT_TRUE(a.quiet());
  lab.run_for(1ms);
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, -ETIMEDOUT);
  EXPECT_EQ(times(a, wire::CmAttribute::kDreq), sixteen(6144ms));
}

TEST_F(Timers, DreqOfThePassiveSide) {
  const Pair ids = established();
  lose_all();
  b.disconnect(ids.passive);
  lab.run_for(16 * 4096ms - 1ms);
  EXPECT_TRUE(b.quiet());
  lab.run_for(1ms);
  EXPECT_EQ(b.expect(EventKind::kDisconnected).status, -ETIMEDOUT);
  EXPECT_EQ(times(b, wire::CmAttribute::kDreq), sixteen(4096ms));
}

TEST_F(Timers, SidrReqSixteenTimesThenUnreachable) {
  lose_all();
  const Id id = a.connect(b, kPort, Transport::kUd);
  lab.run_for(16 * 4096ms);
  EXPECT_EQ(a.expect(EventKind::kUnreachable).status, -ETIMEDOUT);
  EXPECT_EQ(times(a, wire::CmAttribute::kSidrReq), sixteen(4096ms));
  EXPECT_EQ(a.destroy(id), 0);
  EXPECT_EQ(a.cm.size(), 0U);
}

TEST_F(Timers, OthersOnce) {
  const Pair ids = established();
  lab.run_for(1h);
  EXPECT_EQ(a.sent_kinds(), "") << "RTU";
  a.disconnect(ids.active);
  lab.settle();
  lose_all();
  b.expect(EventKind::kDisconnected);
  b.disconnect(ids.passive);
  lab.run_for(1h);
  EXPECT_EQ(b.sent_kinds(), "DREP");
}

TEST_F(Timers, AfterAnMraTheyWaitLonger) {
  const Pair ids = request();
  lab.run_for(6144ms);
  EXPECT_EQ(a.sent_kinds(), "REQ REQ");
  EXPECT_EQ(b.sent_kinds(), "MRA");
  const auto& mra = b.sent.back().as<wire::Mra>();
  EXPECT_EQ(mra.message, wire::CmAnswered::kReq);
  EXPECT_EQ(mra.service_timeout, 24);
  EXPECT_EQ(mra.remote_id, ids.active);
  EXPECT_EQ(mra.local_id, ids.passive);
  lab.run_for(66s);
  EXPECT_EQ(a.sent_kinds(), "");
  lab.run_for(1s);
  EXPECT_EQ(a.sent_kinds(), "REQ") << "ms(24) + ms(19) = 67584 ms";
  EXPECT_EQ(b.sent_kinds(), "MRA");
}

TEST_F(Timers, MrasDoNotKeepAConnectionForever) {
  const Id active = a.connect(b, kPort);
  Peer peer(lab, a, b.address);
  lose_all();
  wire::Mra mra;
  mra.local_id = Id{5};
  mra.remote_id = active;
  mra.service_timeout = 24;
  Duration longest{};
  while (a.quiet() && longest < 10h) {
    peer.send(mra);
    lab.run_for(10s);
    longest += 10s;
  }
  a.expect(EventKind::kUnreachable);
  EXPECT_LT(longest, 1h);
}

TEST_F(Timers, AnMraForAnotherMessageDoesNothing) {
  const Id active = a.connect(b, kPort);
  lose_all();
  Peer peer(lab, a, b.address);
  wire::Mra mra;
  mra.local_id = Id{5};
  mra.remote_id = active;
  mra.message = wire::CmAnswered::kRep;
  mra.service_timeout = 24;
  peer.send(mra);
  lab.run_for(6144ms);
  EXPECT_EQ(a.sent_kinds(), "REQ REQ");
}

TEST_F(Timers, TimewaitLastsTwoSeconds) {
  const Pair ids = established();
  a.disconnect(ids.active);
  lab.settle();
  b.expect(EventKind::kDisconnected);
  const Time start = lab.now;
  b.disconnect(ids.passive);
  EXPECT_EQ(b.state(ids.passive), "TIMEWAIT");
  lab.run_for(2047ms);
  EXPECT_TRUE(b.quiet());
  lab.run_for(1ms);
  EXPECT_EQ(b.expect(EventKind::kTimewaitExit).id, ids.passive);
  EXPECT_EQ(lab.now - start, 2048ms);
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, 0);
  lab.run_dry();
  a.expect(EventKind::kTimewaitExit);
  EXPECT_EQ(a.state(ids.active), "SPENT");
}

TEST_F(Timers, TimewaitFollowsTheAckTimeoutWithinBounds) {
  for (const auto& [code, lasts] : {std::pair{uint8_t{17}, 512ms}, {uint8_t{31}, 8192ms}}) {
    Connect connect = a.connection_to(b, kPort);
    connect.path.ack_timeout = code;
    const Id active = a.connect(connect);
    lab.settle();
    const Id passive = b.expect(EventKind::kConnectRequest).id;
    b.accept(passive);
    lab.settle();
    a.expect(EventKind::kConnectResponse);
    a.confirm(active);
    lab.settle();
    b.expect(EventKind::kEstablished);
    a.disconnect(active);
    lab.settle();
    b.expect(EventKind::kDisconnected);
    b.disconnect(passive);
    const Time start = lab.now;
    while (b.quiet()) lab.run_for(1ms);
    b.expect(EventKind::kTimewaitExit);
    EXPECT_EQ(lab.now - start, lasts);
    lab.run_dry();
    a.events.clear();
  }
}

TEST_F(Timers, ThePeersTimeoutsAreBounded) {
  Peer peer(lab, b, v4(9));
  for (const uint8_t code : {0, 31}) {
    wire::Req req = peer.req(Id{uint32_t{100} + code}, kPort, 0x500U + code);
    req.local_response_timeout = code;
    peer.send(req);
    const Id passive = b.expect(EventKind::kConnectRequest).id;
    const Time start = lab.now;
    b.accept(passive);
    while (b.quiet() && lab.now - start < 1h) lab.run_for(1ms);
    b.expect(EventKind::kUnreachable);
    EXPECT_EQ(lab.now - start, code == 0 ? 16 * 256ms : 16 * 16384ms);
  }
}

TEST_F(Timers, RemoteIdsAreFreeFromTheStartOfTimewait) {
  Peer peer(lab, b, v4(9));
  peer.send(peer.req(Id{5}, kPort), 1);
  const Id first = b.expect(EventKind::kConnectRequest).id;
  b.accept(first);
  wire::Rtu rtu;
  rtu.local_id = Id{5};
  rtu.remote_id = first;
  peer.send(rtu);
  b.expect(EventKind::kEstablished);
  wire::Dreq dreq;
  dreq.local_id = Id{5};
  dreq.remote_id = first;
  dreq.remote_qpn = wire::Qpn(0x100);
  peer.send(dreq, 2);
  b.expect(EventKind::kDisconnected);
  b.disconnect(first);
  EXPECT_EQ(b.state(first), "TIMEWAIT");
  peer.send(peer.req(Id{5}, kPort), 3);
  EXPECT_NE(b.expect(EventKind::kConnectRequest).id, first) << "the same id and QP";
  peer.send(peer.req(Id{5}, kPort), 1);
  EXPECT_TRUE(b.quiet()) << "a late copy of the first REQ is none; but not of the id any more";
}

TEST_F(Timers, ALateCopyOfAReqMakesNoConnection) {
  Peer peer(lab, b, v4(9));
  peer.send(peer.req(Id{5}, kPort), 1);
  const Id first = b.expect(EventKind::kConnectRequest).id;
  b.accept(first);
  wire::Rej rej;
  rej.local_id = Id{5};
  rej.remote_id = first;
  rej.reason = wire::RejReason::kConsumer;
  peer.send(rej);
  b.expect(EventKind::kRejected);
  EXPECT_EQ(b.state(first), "TIMEWAIT");
  peer.send(peer.req(Id{5}, kPort), 1);
  EXPECT_TRUE(b.quiet());
}

TEST_F(Timers, NothingGuardsTheLocalQpn) {
  const Pair first = established();
  const wire::Qpn qpn = b.cm.attributes(kAlice, first.passive)->dest_qpn;
  a.disconnect(first.active);
  lab.settle();
  b.expect(EventKind::kDisconnected);
  b.disconnect(first.passive);
  lab.settle();
  a.expect(EventKind::kDisconnected);
  EXPECT_EQ(a.state(first.active), "TIMEWAIT");
  Connect again = a.connection_to(b, kPort);
  again.parameters.qpn = qpn;
  a.connect(again);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kConnectRequest).parameters.qpn, qpn);
}

// --- arrivals --------------------------------------------------------------------------------------------------------

using Arrivals = States;

TEST_F(Arrivals, ReqAgainWhileAcceptIsAwaited) {
  const Pair ids = request();
  b.sent_kinds();
  Peer peer(lab, b, a.address);
  peer.send(a.sent[0].mad.message, static_cast<uint64_t>(a.sent[0].mad.transaction));
  EXPECT_EQ(b.sent_kinds(), "MRA");
  EXPECT_TRUE(b.quiet());
  b.accept(ids.passive);
  EXPECT_EQ(b.sent_kinds(), "REP");
  peer.send(a.sent[0].mad.message, static_cast<uint64_t>(a.sent[0].mad.transaction));
  EXPECT_EQ(b.sent_kinds(), "") << "the REP has its timer";
  lab.settle();
  a.confirm(ids.active);
  lab.settle();
  b.expect(EventKind::kEstablished);
  peer.send(a.sent[0].mad.message, static_cast<uint64_t>(a.sent[0].mad.transaction));
  EXPECT_EQ(b.sent_kinds(), "");
  EXPECT_TRUE(b.quiet());
}

TEST_F(Arrivals, ReqOfAQpThatIsConnected) {
  const Pair ids = established();
  Connect again = a.connection_to(b, kPort);
  again.parameters.qpn = b.cm.attributes(kAlice, ids.passive)->dest_qpn;
  const Id second = a.connect(again);
  lab.settle();
  const Event event = a.expect(EventKind::kRejected);
  EXPECT_EQ(event.id, second);
  EXPECT_EQ(event.status, 10);
  EXPECT_EQ(b.sent_kinds(), "REJ DREQ") << "on the old connection";
  EXPECT_EQ(a.expect(EventKind::kDisconnected).id, ids.active);
  a.disconnect(ids.active);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kDisconnected).id, ids.passive);
  again.parameters.qpn = b.cm.attributes(kAlice, ids.passive)->dest_qpn;
  a.connect(again);
  lab.settle();
  b.expect(EventKind::kConnectRequest);
}

TEST_F(Arrivals, ReqOfAHostThatHasCrashedAndBeginsWithTheSameIds) {
  Peer peer(lab, b, v4(9));
  peer.send(peer.req(Id{5}, kPort), 1);
  const Id first = b.expect(EventKind::kConnectRequest).id;
  b.accept(first);
  wire::Rtu rtu;
  rtu.local_id = Id{5};
  rtu.remote_id = first;
  peer.send(rtu);
  b.expect(EventKind::kEstablished);
  b.sent_kinds();
  peer.send(peer.req(Id{5}, kPort), 2);
  EXPECT_EQ(b.sent_kinds(), "REJ DREQ");
  EXPECT_EQ(b.sent[b.sent.size() - 2].as<wire::Rej>().reason, wire::RejReason::kStale);
  // It knows nothing of the old one.
  wire::Drep drep;
  drep.local_id = Id{5};
  drep.remote_id = first;
  peer.send(drep);
  b.expect(EventKind::kDisconnected);
  peer.send(peer.req(Id{5}, kPort), 2);
  b.expect(EventKind::kConnectRequest);
}

TEST_F(Arrivals, TheSameIdsAndQpsOfTwoHostsAreDifferent) {
  Peer first(lab, b, v4(8)), second(lab, b, v4(9));
  first.send(first.req(Id{5}, kPort), 1);
  second.send(second.req(Id{5}, kPort), 1);
  EXPECT_NE(b.expect(EventKind::kConnectRequest).id, b.expect(EventKind::kConnectRequest).id);
}

TEST_F(Arrivals, RepOfAQpThatIsConnected) {
  const Pair ids = established();
  const wire::Qpn qpn = a.cm.attributes(kAlice, ids.active)->dest_qpn;
  const Id second = a.connect(b, kPort);
  lab.settle();
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  Accept accept = b.acceptance();
  accept.parameters.qpn = qpn;
  b.cm.accept(kAlice, passive, accept, lab.now);
  a.sent_kinds();
  lab.settle();
  EXPECT_EQ(a.sent_kinds(), "REJ DREQ");
  const Event rejected = b.expect(EventKind::kRejected);
  EXPECT_EQ(rejected.id, passive);
  EXPECT_EQ(rejected.status, 10);
  EXPECT_EQ(a.state(second), "REQ_SENT");
}

TEST_F(Arrivals, RepAgain) {
  const Pair ids = response();
  a.sent_kinds();
  lab.run_for(4s);
  EXPECT_EQ(a.sent_kinds(), "MRA") << "confirm() is awaited";
  EXPECT_EQ(a.sent.back().as<wire::Mra>().message, wire::CmAnswered::kRep);
  EXPECT_TRUE(a.quiet());
  lose(a, wire::CmAttribute::kRtu);
  a.confirm(ids.active);
  lose_none();
  EXPECT_EQ(a.sent_kinds(), "RTU");
  lab.run_for(68s);
  EXPECT_EQ(a.sent_kinds(), "RTU") << "again, for the REP";
  b.expect(EventKind::kEstablished);
}

TEST_F(Arrivals, ALostRtuCostsFourSeconds) {
  const Pair ids = response();
  lose(a, wire::CmAttribute::kRtu);
  a.confirm(ids.active);
  lab.run_for(3s);
  EXPECT_TRUE(b.quiet());
  lose_none();
  lab.run_for(1s);
  b.expect(EventKind::kEstablished);
}

TEST_F(Arrivals, APacketEstablishesWhereTheRtuIsLost) {
  const Pair ids = response();
  lose(a, wire::CmAttribute::kRtu);
  a.confirm(ids.active);
  EXPECT_EQ(b.establish(ids.passive), 0);
  EXPECT_EQ(b.expect(EventKind::kEstablished).id, ids.passive);
  EXPECT_EQ(b.establish(ids.passive), EISCONN);
  b.sent_kinds();
  lose_none();
  lab.run_for(1h);
  EXPECT_EQ(b.sent_kinds(), "") << "the REP has its answer";
  Peer peer(lab, b, a.address);
  wire::Rtu rtu;
  rtu.local_id = ids.active;
  rtu.remote_id = ids.passive;
  peer.send(rtu);
  EXPECT_TRUE(b.quiet()) << "once";
}

TEST_F(Arrivals, DreqForUnknownIds) {
  Peer peer(lab, b, a.address);
  wire::Dreq dreq;
  dreq.local_id = Id{5};
  dreq.remote_id = Id{6};
  peer.send(dreq, 99);
  ASSERT_EQ(b.sent_kinds(), "DREP");
  EXPECT_EQ(b.sent.back().as<wire::Drep>().local_id, Id{6});
  EXPECT_EQ(b.sent.back().as<wire::Drep>().remote_id, Id{5});
  EXPECT_EQ(b.sent.back().mad.transaction, wire::TransactionId{99});
}

TEST_F(Arrivals, DreqInTimewait) {
  const Pair ids = established();
  a.disconnect(ids.active);
  lab.settle();
  b.expect(EventKind::kDisconnected);
  lose(b, wire::CmAttribute::kDrep);
  EXPECT_EQ(b.cm.disconnect(kAlice, ids.passive, PrivateData(std::vector<uint8_t>{1, 2, 3}), lab.now), 0);
  lose_none();
  EXPECT_EQ(b.sent_kinds(), "DREP");
  Peer peer(lab, b, a.address);
  peer.send(a.sent.back().mad.message, static_cast<uint64_t>(a.sent.back().mad.transaction));
  EXPECT_EQ(b.sent_kinds(), "DREP");
  EXPECT_EQ(b.sent.back().datagram.mad, b.sent[b.sent.size() - 2].datagram.mad) << "with its private data";
  EXPECT_TRUE(b.quiet());
  lab.run_for(10s);
  b.expect(EventKind::kTimewaitExit);
  EXPECT_EQ(b.state(ids.passive), "SPENT");
  peer.send(a.sent.back().mad.message);
  EXPECT_EQ(b.sent_kinds(), "DREP");
}

TEST_F(Arrivals, DreqIsAnsweredWhenTheApplicationDisconnects) {
  const Pair ids = established();
  a.disconnect(ids.active);
  lab.run_for(13s);
  EXPECT_EQ(b.expect(EventKind::kDisconnected).status, 0);
  EXPECT_EQ(a.sent_kinds(), "DREQ DREQ DREQ");
  EXPECT_TRUE(b.quiet()) << "once";
  EXPECT_EQ(b.sent_kinds(), "");
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(b.disconnect(ids.passive), 0);
  EXPECT_EQ(b.sent_kinds(), "DREP");
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, 0);
}

TEST_F(Arrivals, DreqWhileTheRtuIsAwaited) {
  const Pair ids = response();
  lose(a, wire::CmAttribute::kRtu);
  a.confirm(ids.active);
  lose_none();
  a.disconnect(ids.active);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kDisconnected).id, ids.passive);
  b.disconnect(ids.passive);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, 0);
}

TEST_F(Arrivals, DreqWhileConfirmIsAwaited) {
  const Pair ids = response();
  b.establish(ids.passive);
  b.expect(EventKind::kEstablished);
  b.destroy(ids.passive);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).id, ids.active);
  EXPECT_EQ(a.confirm(ids.active), EINVAL);
}

TEST_F(Arrivals, DreqForAnotherQpIsIgnored) {
  const Pair ids = established();
  Peer peer(lab, b, a.address);
  wire::Dreq dreq;
  dreq.local_id = ids.active;
  dreq.remote_id = ids.passive;
  dreq.remote_qpn = wire::Qpn(0xbad);
  peer.send(dreq);
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.sent_kinds(), "");
  EXPECT_EQ(b.cm.counters().get(Counter::kDropWrongQpn), 1U);
}

TEST_F(Arrivals, DreqsThatCross) {
  const Pair ids = established();
  a.disconnect(ids.active);
  b.disconnect(ids.passive);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, 0);
  EXPECT_EQ(b.expect(EventKind::kDisconnected).status, 0);
  EXPECT_EQ(a.state(ids.active), "TIMEWAIT");
  EXPECT_EQ(b.state(ids.passive), "TIMEWAIT");
  EXPECT_EQ(a.sent_kinds(), "DREQ DREP");
  EXPECT_EQ(b.sent_kinds(), "DREQ DREP");
  lab.run_dry();
  a.expect(EventKind::kTimewaitExit);
  b.expect(EventKind::kTimewaitExit);
  EXPECT_TRUE(a.quiet() && b.quiet());
}

TEST_F(Arrivals, RejOfAReq) {
  const Pair ids = request();
  const PrivateData data(std::vector<uint8_t>{1, 2, 3});
  EXPECT_EQ(b.cm.reject(kAlice, ids.passive, {.data = data}, lab.now), 0);
  lab.settle();
  const Event event = a.expect(EventKind::kRejected);
  EXPECT_EQ(event.id, ids.active);
  EXPECT_EQ(event.status, 28);
  EXPECT_EQ(event.data.bytes()[2], 3);
  EXPECT_EQ(b.sent.back().as<wire::Rej>().message, wire::CmAnswered::kReq);
  EXPECT_EQ(a.state(ids.active), "SPENT");
  lab.run_dry();
  EXPECT_TRUE(a.quiet() && b.quiet()) << "no TIMEWAIT_EXIT without DISCONNECTED";
}

TEST_F(Arrivals, RejOfARep) {
  const Pair ids = response();
  EXPECT_EQ(a.reject(ids.active), 0);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kRejected).status, 28);
  EXPECT_EQ(a.sent.back().as<wire::Rej>().message, wire::CmAnswered::kRep);
  lab.run_dry();
  EXPECT_TRUE(a.quiet() && b.quiet());
}

TEST_F(Arrivals, RejEndsAnEstablishedConnection) {
  const Pair ids = established();
  Peer peer(lab, a, b.address);
  wire::Rej rej;
  rej.local_id = ids.passive;
  rej.remote_id = ids.active;
  rej.message = wire::CmAnswered::kOther;
  rej.reason = wire::RejReason::kConsumer;
  peer.send(rej);
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 28);
  EXPECT_EQ(a.state(ids.active), "TIMEWAIT");
  lab.run_dry();
  EXPECT_TRUE(a.quiet());
}

TEST_F(Arrivals, RejOfAnEarlierConnectionDoesNotEndThisOne) {
  const Pair ids = established();
  Peer peer(lab, a, b.address);
  wire::Rej rej;
  rej.remote_id = ids.active;
  rej.reason = wire::RejReason::kStale;
  peer.send(rej);
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(a.state(ids.active), "ESTABLISHED");
}

TEST_F(Arrivals, RejWhileADreqIsUnderWay) {
  const Pair ids = established();
  lose_all();
  a.disconnect(ids.active);
  Peer peer(lab, a, b.address);
  wire::Rej rej;
  rej.local_id = ids.passive;
  rej.remote_id = ids.active;
  rej.reason = wire::RejReason::kCommId;
  peer.send(rej);
  EXPECT_EQ(a.expect(EventKind::kDisconnected).status, 0);
}

TEST_F(Arrivals, RejAndRtuThatCross) {
  const Pair ids = response();
  EXPECT_EQ(a.confirm(ids.active), 0);
  EXPECT_EQ(b.reject(ids.passive), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).id, ids.active);
  EXPECT_TRUE(b.quiet()) << "an RTU that is late establishes nothing";
  EXPECT_EQ(b.state(ids.passive), "TIMEWAIT");
}

TEST_F(Arrivals, ALostRejIsSaidAgainToWhoGoesOn) {
  const Pair ids = response();
  lose(b, wire::CmAttribute::kRej);
  EXPECT_EQ(b.destroy(ids.passive), 0);
  lose_none();
  EXPECT_EQ(a.confirm(ids.active), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 28);
}

TEST_F(Arrivals, WhoIsForgottenLearnsIt) {
  const Pair ids = response();
  lose(a, wire::CmAttribute::kRtu);
  a.confirm(ids.active);
  lose_all();
  b.destroy(ids.passive);
  lab.run_for(10s);
  EXPECT_EQ(b.state(ids.passive), "");
  lose_none();
  Peer peer(lab, b, a.address);
  b.sent_kinds();
  peer.send(a.sent.back().mad.message, static_cast<uint64_t>(a.sent.back().mad.transaction));
  EXPECT_EQ(b.sent_kinds(), "REJ");
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).status, static_cast<int>(wire::RejReason::kCommId));
}

TEST_F(Arrivals, RepForWhoHasGoneAway) {
  const Pair ids = request();
  lose_all();
  a.destroy(ids.active);
  lab.run_for(10s);
  lose_none();
  b.accept(ids.passive);
  lab.settle();
  const Event event = b.expect(EventKind::kRejected);
  EXPECT_EQ(event.id, ids.passive);
  EXPECT_EQ(event.status, 6);
}

TEST_F(Arrivals, RequestsThatCrossMakeTwoConnections) {
  a.listen(kPort);
  const Id from_a = a.connect(b, kPort), from_b = b.connect(a, kPort);
  lab.settle();
  const Id at_a = a.expect(EventKind::kConnectRequest).id, at_b = b.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(a.accept(at_a), 0);
  EXPECT_EQ(b.accept(at_b), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kConnectResponse).id, from_a);
  EXPECT_EQ(b.expect(EventKind::kConnectResponse).id, from_b);
  EXPECT_EQ(a.confirm(from_a), 0);
  EXPECT_EQ(b.confirm(from_b), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kEstablished).id, at_a);
  EXPECT_EQ(b.expect(EventKind::kEstablished).id, at_b);
}

TEST_F(Arrivals, RejForATimeoutNamesItsSenderByGuid) {
  const Pair ids = request();
  a.destroy(ids.active);
  const auto& rej = a.sent.back().as<wire::Rej>();
  EXPECT_EQ(rej.reason, wire::RejReason::kTimeout);
  EXPECT_EQ(rej.remote_id, kNoId) << "a knows no id of b";
  EXPECT_EQ(rej.info_length, 8);
  EXPECT_EQ(wire::load_be64(rej.additional_info.data()), static_cast<uint64_t>(a.guid()));
  Peer peer(lab, b, a.address);
  wire::Rej other = rej;
  other.additional_info[0] ^= 1;
  peer.send(other);
  EXPECT_TRUE(b.quiet()) << "another GUID";
  other = rej;
  other.info_length = 7;
  peer.send(other);
  EXPECT_TRUE(b.quiet()) << "no GUID";
  lab.settle();
  const Event event = b.expect(EventKind::kRejected);
  EXPECT_EQ(event.id, ids.passive);
  EXPECT_EQ(event.status, 4);
}

TEST_F(Arrivals, LapIsAnsweredThatThereIsNoAlternatePath) {
  const Pair ids = established();
  Peer peer(lab, b, a.address);
  wire::Lap lap;
  lap.local_id = ids.active;
  lap.remote_id = ids.passive;
  peer.send(lap, 9);
  ASSERT_EQ(b.sent_kinds(), "APR");
  const auto& apr = b.sent.back().as<wire::Apr>();
  EXPECT_EQ(apr.local_id, ids.passive);
  EXPECT_EQ(apr.remote_id, ids.active);
  EXPECT_EQ(apr.status, wire::AprStatus::kUnsupported);
  lap.remote_id = Id{1};
  peer.send(lap, 9);
  EXPECT_EQ(b.sent.back().as<wire::Apr>().status, wire::AprStatus::kCommId);
  peer.send(apr);
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.sent_kinds(), "APR");
}

TEST_F(Arrivals, MessagesFromAnotherHostAreNotOfThisConnection) {
  const Pair ids = established();
  Peer peer(lab, b, v4(66));
  wire::Rej rej;
  rej.local_id = ids.active;
  rej.remote_id = ids.passive;
  peer.send(rej);
  wire::Dreq dreq;
  dreq.local_id = ids.active;
  dreq.remote_id = ids.passive;
  dreq.remote_qpn = b.cm.attributes(kAlice, ids.passive)->dest_qpn;
  peer.send(dreq);
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.state(ids.passive), "ESTABLISHED");
  EXPECT_EQ(b.cm.counters().get(Counter::kDropWrongPeer), 2U);
}

TEST_F(Arrivals, WhatCannotBeAnsweredIsDropped) {
  Peer peer(lab, b, a.address);
  const auto deliver = [&](auto change) {
    Datagram datagram{.source = a.address,
                      .destination = b.address,
                      .mad = wire::emit_cm({.transaction = {}, .message = peer.req(Id{5}, kPort)})};
    change(datagram);
    b.cm.on_datagram(datagram, lab.now);
  };
  deliver([](Datagram& d) { d.source_qpn = wire::Qpn(2); });
  deliver([](Datagram& d) { d.source = {}; });
  deliver([](Datagram& d) { d.source = wire::IpAddress::v6(std::array<uint8_t, 16>{0xff, 2}.data()); });
  deliver([](Datagram& d) { d.destination = wire::IpAddress::v6(std::array<uint8_t, 16>{0xff, 2}.data()); });
  EXPECT_EQ(b.cm.counters().get(Counter::kDropSource), 4U);
  deliver([](Datagram& d) { d.mad[1] = 4; });
  EXPECT_EQ(b.cm.counters().get(Counter::kDropMalformed), 1U);
  EXPECT_EQ(b.sent_kinds(), "");
  EXPECT_TRUE(b.quiet());
}

// --- service id resolution -------------------------------------------------------------------------------------------

using Sidr = States;

TEST_F(Sidr, DuplicatesAreAnsweredAgainForAWhile) {
  b.listen_datagrams(kPort);
  const Id active = a.connect(b, kPort, Transport::kUd);
  lab.settle();
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  lab.run_for(4s);
  EXPECT_TRUE(b.quiet()) << "accept() is awaited";
  EXPECT_EQ(b.sent_kinds(), "");
  lose(b, wire::CmAttribute::kSidrRep);
  b.accept(passive);
  b.destroy(passive);
  lab.run_for(4s);
  EXPECT_EQ(b.sent_kinds(), "SIDR_REP SIDR_REP");
  lose_none();
  lab.run_for(4s);
  EXPECT_EQ(a.expect(EventKind::kEstablished).id, active);
  lab.run_for(10s);
  EXPECT_EQ(b.state(passive), "");
  EXPECT_TRUE(b.quiet());
}

TEST_F(Sidr, AsLongAsTheApplicationHasTheIdItIsAnsweredAgain) {
  b.listen_datagrams(kPort);
  a.connect(b, kPort, Transport::kUd);
  lab.settle();
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  lose(b, wire::CmAttribute::kSidrRep);
  b.accept(passive);
  lab.run_for(30s);
  EXPECT_EQ(b.state(passive), "SPENT");
  lose_none();
  lab.run_for(5s);
  a.expect(EventKind::kEstablished);
  EXPECT_TRUE(b.quiet());
}

TEST_F(Sidr, EqualRequestIdsOfTwoHostsAreDifferent) {
  b.listen_datagrams(kPort);
  Peer first(lab, b, v4(8)), second(lab, b, v4(9));
  for (Peer* const peer : {&first, &second}) {
    wire::SidrReq req;
    req.request_id = Id{5};
    req.service_id = wire::service_id(wire::PortSpace::kUdp, kPort);
    wire::CmaHeader{.v4 = true, .source_port = 1, .source = peer->address, .destination = b.address}.emit(
        req.private_data.data());
    peer->send(req);
    b.expect(EventKind::kConnectRequest);
  }
}

TEST_F(Sidr, AnAnswerThatIsLateDoesNothing) {
  b.listen_datagrams(kPort);
  const Id active = a.connect(b, kPort, Transport::kUd);
  lab.settle();
  b.accept(b.expect(EventKind::kConnectRequest).id);
  lab.settle();
  a.expect(EventKind::kEstablished);
  Peer peer(lab, a, b.address);
  peer.send(b.sent.back().mad.message);
  EXPECT_TRUE(a.quiet());
  a.destroy(active);
  peer.send(b.sent.back().mad.message);
  EXPECT_EQ(a.cm.counters().get(Counter::kDropUnknownId), 1U);
}

// --- commands --------------------------------------------------------------------------------------------------------

using Commands = States;

TEST_F(Commands, DisconnectIsZeroInEveryState) {
  Pair ids = request();
  EXPECT_EQ(a.disconnect(ids.active), 0);
  EXPECT_EQ(b.disconnect(ids.passive), 0);
  b.accept(ids.passive);
  EXPECT_EQ(b.disconnect(ids.passive), 0);
  lab.settle();
  a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(a.disconnect(ids.active), 0);
  EXPECT_EQ(a.confirm(ids.active), 0);
  lab.settle();
  b.expect(EventKind::kEstablished);
  EXPECT_EQ(a.disconnect(ids.active), 0);
  EXPECT_EQ(a.disconnect(ids.active), 0);
  lab.settle();
  EXPECT_EQ(b.disconnect(ids.passive), 0);
  EXPECT_EQ(b.disconnect(ids.passive), 0);
  lab.run_dry();
  EXPECT_EQ(a.disconnect(ids.active), 0);
  EXPECT_EQ(a.sent_kinds(), "REQ RTU DREQ");
  EXPECT_EQ(b.sent_kinds(), "REP DREP");
}

TEST_F(Commands, WhatTheStateDoesNotAllowIsRefused) {
  const Id active = a.connect(b, kPort);
  EXPECT_EQ(a.accept(active), EINVAL);
  EXPECT_EQ(a.confirm(active), EINVAL);
  EXPECT_EQ(a.reject(active), EINVAL);
  EXPECT_EQ(a.establish(active), EINVAL);
  lab.settle();
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(b.confirm(passive), EINVAL);
  EXPECT_EQ(b.establish(passive), EINVAL);
  EXPECT_EQ(b.accept(passive), 0);
  EXPECT_EQ(b.accept(passive), EINVAL);
  lab.settle();
  EXPECT_EQ(a.accept(active), EINVAL);
  EXPECT_EQ(a.establish(active), EINVAL);
  EXPECT_EQ(a.confirm(active), 0);
  EXPECT_EQ(a.confirm(active), EINVAL);
  EXPECT_EQ(a.reject(active), EINVAL);
  EXPECT_EQ(a.establish(active), EISCONN);
  EXPECT_EQ(b.accept(listener), EINVAL);
  EXPECT_EQ(b.disconnect(listener), EINVAL);
}

TEST_F(Commands, IdsOfOtherClientsDoNotExist) {
  const Pair ids = request();
  EXPECT_EQ(b.accept(ids.passive, kBob), ENOENT);
  EXPECT_EQ(b.reject(ids.passive, kBob), ENOENT);
  EXPECT_EQ(b.destroy(ids.passive, kBob), ENOENT);
  EXPECT_EQ(b.destroy(listener, kBob), ENOENT);
  EXPECT_EQ(b.disconnect(ids.passive, kBob), ENOENT);
  EXPECT_EQ(b.cm.take(kBob, ids.passive), ENOENT);
  EXPECT_EQ(b.cm.attributes(kBob, ids.passive), nullptr);
  EXPECT_EQ(b.destroy(ids.passive), 0);
  EXPECT_EQ(b.destroy(ids.passive), ENOENT);
}

TEST_F(Commands, PathsWithoutDestinationAreRefused) {
  Connect connect = a.connection_to(b, kPort);
  connect.path.remote = {};
  EXPECT_EQ(a.cm.connect(kAlice, connect, lab.now).error, EINVAL);
  connect.path.remote = wire::IpAddress::v6(std::array<uint8_t, 16>{0xff, 2}.data());
  EXPECT_EQ(a.cm.connect(kAlice, connect, lab.now).error, EINVAL);
  EXPECT_EQ(a.cm.size(), 0U);
}

TEST_F(Commands, DestroyInReqSent) {
  lose_all();
  const Id active = a.connect(b, kPort);
  EXPECT_EQ(a.destroy(active), 0);
  EXPECT_EQ(a.sent_kinds(), "REQ REJ");
  EXPECT_EQ(a.sent.back().as<wire::Rej>().reason, wire::RejReason::kTimeout);
  lab.run_dry();
  EXPECT_EQ(a.cm.size(), 0U);
  EXPECT_EQ(a.sent_kinds(), "");
}

TEST_F(Commands, DestroyInReqReceived) {
  const Pair ids = request();
  EXPECT_EQ(b.destroy(ids.passive), 0);
  EXPECT_EQ(b.sent_kinds(), "REJ");
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 28);
}

TEST_F(Commands, DestroyInRepReceived) {
  const Pair ids = response();
  a.sent_kinds();
  EXPECT_EQ(a.destroy(ids.active), 0);
  EXPECT_EQ(a.sent_kinds(), "REJ");
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kRejected).status, 28);
}

TEST_F(Commands, DestroyInRepSent) {
  const Pair ids = response();
  b.sent_kinds();
  EXPECT_EQ(b.destroy(ids.passive), 0);
  EXPECT_EQ(b.sent_kinds(), "REJ");
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 28);
}

TEST_F(Commands, DestroyInEstablished) {
  const Pair ids = established();
  EXPECT_EQ(a.destroy(ids.active), 0);
  EXPECT_EQ(a.sent_kinds(), "DREQ");
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kDisconnected).id, ids.passive);
  b.disconnect(ids.passive);
  lab.run_dry();
  EXPECT_TRUE(a.quiet()) << "of an id that is gone nobody hears";
  EXPECT_EQ(a.cm.size(), 0U);
}

TEST_F(Commands, TheDreqOfAnIdThatIsGoneIsRepeated) {
  const Pair ids = established();
  lose_all();
  a.destroy(ids.active);
  lab.run_for(7s);
  EXPECT_EQ(a.sent_kinds(), "DREQ DREQ");
  lose_none();
  lab.run_for(6s);
  b.expect(EventKind::kDisconnected);
}

TEST_F(Commands, DestroyInDreqSent) {
  const Pair ids = established();
  a.disconnect(ids.active);
  a.destroy(ids.active);
  lab.settle();
  b.expect(EventKind::kDisconnected);
  b.destroy(ids.passive);
  EXPECT_EQ(b.sent_kinds(), "DREP") << "DREQ received";
  lab.run_dry();
  EXPECT_EQ(a.sent_kinds(), "DREQ");
  EXPECT_EQ(a.cm.size(), 0U);
  EXPECT_EQ(b.cm.size(), 1U) << "the listener";
  EXPECT_TRUE(a.quiet() && b.quiet());
}

TEST_F(Commands, DestroyInTimewait) {
  const Pair ids = established();
  a.disconnect(ids.active);
  lab.settle();
  b.disconnect(ids.passive);
  b.destroy(ids.passive);
  lab.run_dry();
  b.expect(EventKind::kDisconnected);
  EXPECT_TRUE(b.quiet()) << "no TIMEWAIT_EXIT";
  EXPECT_EQ(b.cm.size(), 1U);
}

TEST_F(Commands, DestroyOfDatagramRequests) {
  b.listen_datagrams(kPort);
  const Id active = a.connect(b, kPort, Transport::kUd);
  lab.settle();
  b.destroy(b.expect(EventKind::kConnectRequest).id);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kUnreachable).status, 2);
  a.destroy(active);
  const Id second = a.connect(b, kPort, Transport::kUd);
  a.sent_kinds();
  a.destroy(second);
  EXPECT_EQ(a.sent_kinds(), "");
  EXPECT_EQ(a.cm.size(), 0U);
}

TEST_F(Commands, AListenerTakesRequestsAlongThatNobodyHasSeen) {
  const Pair seen = request();
  b.cm.take(kAlice, seen.passive);
  const Id second = a.connect(b, kPort);
  lab.settle();
  const Id unseen = b.expect(EventKind::kConnectRequest).id;
  b.destroy(listener);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).id, second);
  EXPECT_EQ(b.state(unseen), "TIMEWAIT");
  EXPECT_EQ(b.accept(unseen), ENOENT);
  EXPECT_EQ(b.accept(seen.passive), 0);
  lab.settle();
  a.expect(EventKind::kConnectResponse);
}

TEST_F(Commands, TheDeathOfAClientEndsItsConnectionsAndNoOthers) {
  const Id of_bob = b.listen(kPort + 1, kBob);
  const Pair alices = established();
  const Id to_bob = a.connect(b, kPort + 1);
  lab.settle();
  const Id bobs = b.expect(EventKind::kConnectRequest).id;
  b.accept(bobs, kBob);
  lab.settle();
  a.expect(EventKind::kConnectResponse);
  a.confirm(to_bob);
  lab.settle();
  b.expect(EventKind::kEstablished);
  const Id asking = a.connect(b, kPort + 1);
  lab.settle();
  b.expect(EventKind::kConnectRequest);
  b.sent_kinds();

  b.cm.end_client(kBob, lab.now);
  EXPECT_EQ(b.state(of_bob), "");
  lab.settle();
  Event first = a.expect(EventKind::kDisconnected), second = a.events.empty() ? Event{} : a.events.front();
  if (second.kind == EventKind::kDisconnected) std::swap(first, second);
  EXPECT_EQ(first.id, to_bob);
  EXPECT_EQ(second.id, asking);
  EXPECT_EQ(b.state(alices.passive), "ESTABLISHED");
  EXPECT_EQ(b.disconnect(alices.passive), 0);
  a.disconnect(to_bob);
  lab.run_dry();
  EXPECT_EQ(b.cm.size(), 2U) << "Alice's listener and connection";
}

}  // namespace
}  // namespace uroce::cm::test

// SPDX-License-Identifier: BSD-2-Clause
// cm.md "States": what arrives, row by row.
#include "tests/cm/states.h"

namespace uroce::cm::test {
namespace {

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

}  // namespace
}  // namespace uroce::cm::test

// SPDX-License-Identifier: BSD-2-Clause
// cm.md "States": what commands do, by state; and datagram services, of which there is little.
#include "tests/cm/states.h"

namespace uroce::cm::test {
namespace {

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

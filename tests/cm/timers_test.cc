// SPDX-License-Identifier: BSD-2-Clause
// cm.md "Timers", row by row.
#include "tests/cm/states.h"

namespace uroce::cm::test {
namespace {

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
  established();  // the address is proven
  b.sent.clear();
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
  for (const bool proven : {false, true}) {
    Peer peer(lab, b, v4(proven ? 8 : 9));
    peer.guid = wire::Guid{proven ? 8U : 9U};
    if (proven) {
      peer.send(peer.req(Id{1}, kPort, 0x300));
      const Id id = b.expect(EventKind::kConnectRequest).id;
      b.accept(id);
      peer.send(Peer::rtu(Id{1}, id));
      b.expect(EventKind::kEstablished);
    }
    for (const uint8_t code : {0, 31}) {
      wire::Req req = peer.req(Id{uint32_t{100} + code}, kPort, 0x500U + code);
      req.local_response_timeout = code;
      peer.send(req);
      const Id passive = b.expect(EventKind::kConnectRequest).id;
      const Time start = lab.now;
      b.accept(passive);
      while (b.quiet() && lab.now - start < 1h) lab.run_for(1ms);
      b.expect(EventKind::kUnreachable);
      const Duration least = proven ? 256ms : 1000ms;
      EXPECT_EQ(lab.now - start, 16 * (code == 0 ? least : 16384ms));
    }
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

}  // namespace
}  // namespace uroce::cm::test

// SPDX-License-Identifier: BSD-2-Clause
// What the messages say, and what both sides make of it.
#include <gtest/gtest.h>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

PrivateData numbered(size_t size) {
  std::array<uint8_t, PrivateData::kMost> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  return PrivateData(std::span<const uint8_t>(bytes).first(size));
}

// As it comes out of a field of `room` bytes.
std::vector<uint8_t> in_field(const PrivateData& data, size_t room) {
  std::vector<uint8_t> bytes(data.bytes().begin(), data.bytes().end());
  bytes.resize(room);
  return bytes;
}
std::vector<uint8_t> bytes_of(const PrivateData& data) {
  return {data.bytes().begin(), data.bytes().end()};
}

struct Messages : testing::Test {
  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)};
};

TEST_F(Messages, ThreeMessagesMakeAConnection) {
  const Id listener = b.listen(kPort);
  Connect connect = a.connection_to(b, kPort);
  connect.ece = {.vendor_id = 0x0102c9, .options = 5};
  const Id active = a.connect(connect);
  lab.settle();
  const Sent& req = a.sent.at(0);
  EXPECT_EQ(req.datagram.destination, b.address);
  EXPECT_EQ(req.as<wire::Req>().service_id, wire::ServiceId{0x01061d2f});

  const Event request = b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(request.listener, listener);
  EXPECT_NE(request.id, listener);
  EXPECT_EQ(request.client, kAlice);
  EXPECT_EQ(request.transport, Transport::kRc);
  EXPECT_EQ(request.service, wire::ServiceId{0x01061d2f});
  EXPECT_EQ(request.names, connect.names);
  EXPECT_EQ(request.ece, connect.ece);
  EXPECT_EQ(request.parameters.qpn, connect.parameters.qpn);
  EXPECT_EQ(request.parameters.responder_resources, connect.parameters.initiator_depth) << "the other way round";
  EXPECT_EQ(request.parameters.initiator_depth, connect.parameters.responder_resources);
  EXPECT_EQ(request.parameters.retry_count, 7);
  EXPECT_EQ(request.parameters.rnr_retry, 6);
  EXPECT_EQ(request.qp.path.local, b.address);
  EXPECT_EQ(request.qp.path.remote, a.address);
  EXPECT_EQ(request.qp.path.flow_label, 0x12345U);
  EXPECT_EQ(request.qp.path.mtu, connect.path.mtu);
  EXPECT_EQ(request.qp.path.netdev, static_cast<uint32_t>(b.guid()));

  Accept accept = b.acceptance();
  accept.ece = {.vendor_id = 0x0203ca, .options = 6};
  ASSERT_EQ(b.cm.accept(kAlice, request.id, accept, lab.now), 0);
  lab.settle();
  const Event response = a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(response.id, active);
  EXPECT_EQ(response.ece, accept.ece);
  EXPECT_EQ(response.parameters.qpn, accept.parameters.qpn);
  EXPECT_EQ(response.parameters.responder_resources, accept.parameters.initiator_depth);
  EXPECT_EQ(response.parameters.initiator_depth, accept.parameters.responder_resources);

  ASSERT_EQ(a.confirm(active), 0);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kEstablished).id, request.id);
  EXPECT_EQ(a.sent_kinds(), "REQ RTU");
  EXPECT_EQ(b.sent_kinds(), "REP");
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(a.state(active), "ESTABLISHED");
  EXPECT_EQ(b.state(request.id), "ESTABLISHED");
}

TEST_F(Messages, BothSidesAgreeOnTheAttributesOfTheirQps) {
  b.listen(kPort);
  const Connect connect = a.connection_to(b, kPort);
  const Id active = a.connect(connect);
  lab.settle();
  const Event request = b.expect(EventKind::kConnectRequest);
  const Accept accept = b.acceptance();
  ASSERT_EQ(b.cm.accept(kAlice, request.id, accept, lab.now), 0);
  lab.settle();
  const Event response = a.expect(EventKind::kConnectResponse);
  const QpAttributes& of_a = *a.cm.attributes(kAlice, active);
  const QpAttributes& of_b = *b.cm.attributes(kAlice, request.id);
  EXPECT_EQ(response.qp, of_a);

  EXPECT_EQ(of_a.sq_psn, of_b.rq_psn);
  EXPECT_EQ(of_b.sq_psn, of_a.rq_psn);
  EXPECT_NE(of_a.sq_psn, of_b.sq_psn) << "random";
  EXPECT_EQ(request.qp.rq_psn, of_b.rq_psn) << "known before accept(): the QP is made ready to receive first";
  EXPECT_EQ(of_a.dest_qpn, accept.parameters.qpn);
  EXPECT_EQ(of_b.dest_qpn, connect.parameters.qpn);
  EXPECT_EQ(of_a.path.mtu, of_b.path.mtu);
  EXPECT_EQ(of_a.path.flow_label, of_b.path.flow_label);
  // READs: what one side sends, the other takes.
  EXPECT_EQ(of_b.max_rd_atomic, 2);
  EXPECT_EQ(of_a.max_dest_rd_atomic, 2);
  EXPECT_EQ(of_b.max_dest_rd_atomic, 3);
  EXPECT_EQ(of_a.max_rd_atomic, 3);
  EXPECT_EQ(of_a.retry_count, 7);
  EXPECT_EQ(of_b.retry_count, 7) << "REQ's";
  EXPECT_EQ(of_a.rnr_retry, 5) << "the other side's";
  EXPECT_EQ(of_b.rnr_retry, 6);
  EXPECT_EQ(of_a.min_rnr_timer, 0);
  EXPECT_EQ(of_a.path.ack_timeout, 19);
  EXPECT_EQ(of_b.path.ack_timeout, 19);
}

TEST_F(Messages, TheOtherSideCannotRaiseTheDepths) {
  const Id active = a.connect(b, kPort);
  Peer peer(lab, a, b.address);
  wire::Rep rep = peer.rep(Id{77}, active);
  rep.responder_resources = 255;
  rep.initiator_depth = 255;
  peer.send(rep);
  const Event response = a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(response.parameters.initiator_depth, 255) << "as it was said";
  EXPECT_EQ(response.qp.max_rd_atomic, 3);
  EXPECT_EQ(response.qp.max_dest_rd_atomic, 4);
}

// A connection that is made step by step; the last step says `data`.
struct Steps {
  Steps() { b.listen(kPort); }
  void connect(const PrivateData& data = {}) {
    Connect with = a.connection_to(b, kPort);
    with.data = data;
    active = a.connect(with);
    EXPECT_NE(active, kNoId);
    lab.settle();
  }
  void request() {
    connect();
    passive = b.expect(EventKind::kConnectRequest).id;
  }
  void accept(const PrivateData& data = {}) {
    request();
    Accept with = b.acceptance();
    with.data = data;
    EXPECT_EQ(b.cm.accept(kAlice, passive, with, lab.now), 0);
    lab.settle();
  }
  void reject(const PrivateData& data) {
    request();
    EXPECT_EQ(b.cm.reject(kAlice, passive, {.data = data}, lab.now), 0);
    lab.settle();
  }
  void confirm(const PrivateData& data = {}) {
    accept();
    a.expect(EventKind::kConnectResponse);
    EXPECT_EQ(a.cm.confirm(kAlice, active, data, lab.now), 0);
    lab.settle();
  }
  void disconnect(const PrivateData& data) {
    confirm();
    b.expect(EventKind::kEstablished);
    EXPECT_EQ(a.cm.disconnect(kAlice, active, data, lab.now), 0);
    lab.settle();
  }

  void agree(const PrivateData& data) {
    disconnect({});
    b.expect(EventKind::kDisconnected);
    EXPECT_EQ(b.cm.disconnect(kAlice, passive, data, lab.now), 0);
    lab.settle();
  }

  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)};
  Id active{}, passive{};
};

TEST(PrivateDataLength, AnyThatFits) {
  const auto expect_all = [&](size_t room, auto&& send, Host Steps::*receiver, EventKind kind) {
    for (size_t size = 0; size <= room; ++size) {
      Steps steps;
      send(steps, numbered(size));
      EXPECT_EQ(bytes_of((steps.*receiver).expect(kind).data), in_field(numbered(size), room)) << size;
    }
  };
  expect_all(
      56, [](Steps& s, const auto& data) { s.connect(data); }, &Steps::b, EventKind::kConnectRequest);
  expect_all(
      196, [](Steps& s, const auto& data) { s.accept(data); }, &Steps::a, EventKind::kConnectResponse);
  expect_all(
      148, [](Steps& s, const auto& data) { s.reject(data); }, &Steps::a, EventKind::kRejected);
  expect_all(
      224, [](Steps& s, const auto& data) { s.confirm(data); }, &Steps::b, EventKind::kEstablished);
  expect_all(
      220, [](Steps& s, const auto& data) { s.disconnect(data); }, &Steps::b, EventKind::kDisconnected);
  expect_all(
      224, [](Steps& s, const auto& data) { s.agree(data); }, &Steps::a, EventKind::kDisconnected);
}

TEST_F(Messages, PrivateDataThatDoesNotFitIsRefused) {
  b.listen(kPort);
  Connect connect = a.connection_to(b, kPort);
  connect.data = numbered(57);
  EXPECT_EQ(a.cm.connect(kAlice, connect, lab.now).error, EINVAL);
  connect.data = numbered(56);
  EXPECT_EQ(a.cm.connect(kAlice, connect, lab.now).error, 0);
  Connect datagrams = a.connection_to(b, kPort, Transport::kUd);
  datagrams.data = numbered(181);
  EXPECT_EQ(a.cm.connect(kAlice, datagrams, lab.now).error, EINVAL);
  datagrams.names.reset();
  datagrams.data = numbered(216);
  EXPECT_EQ(a.cm.connect(kAlice, datagrams, lab.now).error, 0);
  lab.settle();
  const Id passive = b.expect(EventKind::kConnectRequest).id;
  Accept accept = b.acceptance();
  accept.data = numbered(197);
  EXPECT_EQ(b.cm.accept(kAlice, passive, accept, lab.now), EINVAL);
  EXPECT_EQ(b.cm.reject(kAlice, passive, {.data = numbered(149)}, lab.now), EINVAL);
  EXPECT_EQ(b.state(passive), "REQ_RECEIVED");
  EXPECT_EQ(b.cm.disconnect(kAlice, passive, numbered(221), lab.now), EINVAL);
}

TEST_F(Messages, WithoutIpAddressesAllPrivateDataIsTheApplications) {
  const wire::ServiceId service = wire::service_id(wire::PortSpace::kIb, 5);
  ASSERT_EQ(b.cm.listen(kAlice, {.service = service, .ip = false}).error, 0);
  Connect connect = a.connection_to(b, kPort);
  connect.service = service;
  connect.names.reset();
  for (size_t size = 0; size <= 92; ++size) {
    connect.data = numbered(size);
    connect.parameters.qpn = wire::Qpn(static_cast<uint32_t>(0x900 + size));
    a.connect(connect);
    lab.settle();
    const Event request = b.expect(EventKind::kConnectRequest);
    EXPECT_FALSE(request.names);
    EXPECT_EQ(bytes_of(request.data), in_field(connect.data, 92));
  }
}

TEST_F(Messages, UnreliableConnection) {
  b.listen(kPort);
  const Id active = a.connect(b, kPort, Transport::kUc);
  lab.settle();
  EXPECT_EQ(a.sent.at(0).as<wire::Req>().transport, wire::CmTransport::kUc);
  const Event request = b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(request.transport, Transport::kUc);
  b.accept(request.id);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kConnectResponse).transport, Transport::kUc);
  EXPECT_EQ(a.confirm(active), 0);
}

TEST_F(Messages, XrcNamesTheTargetsQpElsewhere) {
  b.listen(kPort);
  const Id active = a.connect(b, kPort, Transport::kXrc);
  lab.settle();
  const auto& req = a.sent.at(0).as<wire::Req>();
  EXPECT_EQ(req.transport, wire::CmTransport::kExtended);
  EXPECT_EQ(req.extended_transport, 1);
  EXPECT_EQ(req.responder_resources, 0) << "an initiator answers nothing";
  EXPECT_EQ(req.initiator_depth, 3);
  const Event request = b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(request.transport, Transport::kXrc);
  Accept accept = b.acceptance();
  b.cm.accept(kAlice, request.id, accept, lab.now);
  lab.settle();
  const auto& rep = b.sent.at(0).as<wire::Rep>();
  EXPECT_EQ(rep.eecn, accept.parameters.qpn.value());
  EXPECT_EQ(rep.qpn, wire::Qpn(0));
  EXPECT_TRUE(rep.srq);
  EXPECT_EQ(a.expect(EventKind::kConnectResponse).qp.dest_qpn, accept.parameters.qpn);
  a.confirm(active);
  lab.settle();
  b.expect(EventKind::kEstablished);
  a.disconnect(active);
  lab.settle();
  EXPECT_EQ(b.expect(EventKind::kDisconnected).id, request.id) << "the DREQ names the target's QP";
}

TEST_F(Messages, UnknownTransportsAreRefused) {
  b.listen(kPort);
  Peer peer(lab, b, a.address);
  for (const auto& [transport, extended] :
       {std::pair{wire::CmTransport::kRd, 0}, {wire::CmTransport::kExtended, 0}, {wire::CmTransport::kExtended, 2}}) {
    wire::Req req = peer.req(Id{5}, kPort);
    req.transport = transport;
    req.extended_transport = static_cast<uint8_t>(extended);
    peer.send(req);
    EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kTransport);
  }
  EXPECT_TRUE(b.quiet());
}

TEST_F(Messages, PathsThatAreNoneAreRefused) {
  b.listen(kPort);
  Peer peer(lab, b, a.address);
  for (const uint8_t mtu : {0, 6, 15}) {
    wire::Req req = peer.req(Id{5}, kPort);
    req.path_mtu = mtu;
    peer.send(req);
    EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kMtu) << int{mtu};
  }
  wire::Req req = peer.req(Id{5}, kPort);
  req.primary.local_gid = {};
  peer.send(req);
  EXPECT_EQ(b.sent.back().as<wire::Rej>().reason, wire::RejReason::kGid);
  EXPECT_TRUE(b.quiet());
}

TEST_F(Messages, DatagramServiceIsResolved) {
  const Id listener = b.listen_datagrams(kPort);
  for (size_t size = 0; size <= 180; ++size) {
    Connect connect = a.connection_to(b, kPort, Transport::kUd);
    connect.data = numbered(size);
    const Id active = a.connect(connect);
    lab.settle();
    const Event request = b.expect(EventKind::kConnectRequest);
    EXPECT_EQ(request.listener, listener);
    EXPECT_EQ(request.transport, Transport::kUd);
    EXPECT_EQ(request.names, connect.names);
    EXPECT_EQ(bytes_of(request.data), in_field(connect.data, 180));
    Accept accept = b.acceptance();
    accept.data = numbered(std::min<size_t>(size, 136));
    ASSERT_EQ(b.cm.accept(kAlice, request.id, accept, lab.now), 0);
    lab.settle();
    const Event established = a.expect(EventKind::kEstablished);
    EXPECT_EQ(established.id, active);
    EXPECT_EQ(established.status, 0);
    EXPECT_EQ(established.qp.dest_qpn, accept.parameters.qpn);
    EXPECT_EQ(established.qp.qkey, 0x01234567U);
    EXPECT_EQ(bytes_of(established.data), in_field(accept.data, 136));
    EXPECT_TRUE(b.quiet()) << "the passive side is told nothing";
    EXPECT_EQ(a.destroy(active), 0);
    EXPECT_EQ(b.destroy(request.id), 0);
  }
  EXPECT_EQ(a.cm.size(), 0U);
  lab.run_for(20s);
  EXPECT_EQ(b.cm.size(), 1U) << "the listener";
}

TEST_F(Messages, DatagramServiceIsRefused) {
  b.listen_datagrams(kPort);
  const Id nobody = a.connect(b, kPort + 1, Transport::kUd);
  lab.settle();
  Event refused = a.expect(EventKind::kUnreachable);
  EXPECT_EQ(refused.id, nobody);
  EXPECT_EQ(refused.status, 1);
  a.connect(b, kPort, Transport::kUd);
  lab.settle();
  EXPECT_EQ(b.cm.reject(kAlice, b.expect(EventKind::kConnectRequest).id, {.data = numbered(136)}, lab.now), 0);
  lab.settle();
  refused = a.expect(EventKind::kUnreachable);
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(bytes_of(refused.data), in_field(numbered(136), 136));
  a.connect(b, kPort, Transport::kUd);
  lab.settle();
  EXPECT_EQ(
      b.cm.reject(kAlice, b.expect(EventKind::kConnectRequest).id, {.sidr_status = wire::SidrStatus::kNoQp}, lab.now),
      0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kUnreachable).status, 3);
}

TEST_F(Messages, AListenerForDatagramsTakesNoConnections) {
  const wire::ServiceId service = wire::service_id(wire::PortSpace::kIb, 5);
  ASSERT_EQ(b.cm.listen(kAlice, {.service = service, .datagrams = true}).error, 0);
  Connect connect = a.connection_to(b, kPort);
  connect.service = service;
  a.connect(connect);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kRejected).status, 8);
}

TEST_F(Messages, FieldsThatLinuxHasToo) {
  b.listen(kPort);
  Connect connect = a.connection_to(b, kPort);
  connect.parameters.retry_count = 15;  // libfabric
  connect.parameters.rnr_retry = 15;
  a.connect(connect);
  const auto& req = a.sent.at(0).as<wire::Req>();
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.rnr_retry, 7);
  EXPECT_EQ(req.remote_response_timeout, 20);
  EXPECT_EQ(req.local_response_timeout, 20);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_EQ(req.ca_guid, a.guid());
  EXPECT_EQ(req.primary.local_lid, 0xffff);
  EXPECT_EQ(req.primary.remote_lid, 0xffff);
  EXPECT_EQ(req.primary.local_gid, a.address);
  EXPECT_EQ(req.primary.remote_gid, b.address);
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_FALSE(req.primary.subnet_local);
  EXPECT_EQ(req.primary.ack_timeout, 19);
  EXPECT_EQ(req.alternate, wire::ReqPath{}) << "a LID would make it a path";
  connect.path.hop_limit = 1;
  connect.parameters.qpn = wire::Qpn(0x9999);
  a.connect(connect);
  EXPECT_TRUE(a.sent.at(1).as<wire::Req>().primary.subnet_local);
}

TEST(Addresses, Ipv6AndLinkLocal) {
  for (const auto& address : {v6, link_local}) {
    Lab lab;
    Host a(lab, address(1)), b(lab, address(2));
    b.listen(kPort);
    const Id active = a.connect(b, kPort);
    lab.settle();
    const Event request = b.expect(EventKind::kConnectRequest);
    ASSERT_TRUE(request.names);
    EXPECT_FALSE(request.names->v4);
    EXPECT_EQ(request.names->source, a.address);
    b.accept(request.id);
    lab.settle();
    a.expect(EventKind::kConnectResponse);
    a.confirm(active);
    lab.settle();
    b.expect(EventKind::kEstablished);
  }
}

TEST(Addresses, OneHostWithItself) {
  Lab lab;
  Host a(lab, v4(1));
  a.listen(kPort, kBob);
  const Id active = a.connect(a, kPort);
  lab.settle();
  const Id passive = a.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(a.accept(passive, kBob), 0);
  lab.settle();
  a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(a.confirm(active), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kEstablished).client, kBob);
  EXPECT_EQ(a.disconnect(passive, kBob), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).id, active);
  EXPECT_EQ(a.disconnect(active), 0);
  lab.settle();
  EXPECT_EQ(a.expect(EventKind::kDisconnected).id, passive);
}

}  // namespace
}  // namespace uroce::cm::test

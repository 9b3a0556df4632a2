// SPDX-License-Identifier: BSD-2-Clause
// Connections from command to event, between two hosts.
#include <cstring>

#include "lab.h"

namespace uroce::rdma_cm::test {
namespace {

using abi::EventKind;

std::string data_of(const abi::ConnParam& conn) {
  return {conn.private_data.begin(), conn.private_data.begin() + conn.private_data_len};
}

TEST(Connection, IsMadeUsedAndEnded) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111, "from a"), 0);

  const abi::Event request = pair.b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(request.uid, 100u) << "the listener's";
  EXPECT_EQ(request.param.conn.qp_num, 0x111u);
  EXPECT_EQ(request.param.conn.private_data_len, 56) << "all that REQ has room for";
  EXPECT_EQ(data_of(request.param.conn).substr(0, 6), "from a");
  EXPECT_EQ(request.param.conn.responder_resources, 3) << "the other side's initiator depth";
  EXPECT_EQ(request.param.conn.initiator_depth, 4);
  EXPECT_EQ(request.param.conn.retry_count, 5);
  EXPECT_EQ(request.param.conn.rnr_retry_count, 6);
  ASSERT_EQ(pair.b.accept(request.id, 300, 0x222, "from b"), 0);

  const abi::Event response = pair.a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(response.uid, 200u);
  EXPECT_EQ(response.id, active);
  EXPECT_EQ(response.param.conn.qp_num, 0x222u);
  EXPECT_EQ(response.param.conn.private_data_len, 196);
  EXPECT_EQ(data_of(response.param.conn).substr(0, 6), "from b");
  ASSERT_EQ(pair.a.confirm(active), 0);
  const abi::Event established = pair.b.expect(EventKind::kEstablished);
  EXPECT_EQ(established.uid, 300u);
  EXPECT_EQ(established.id, request.id);

  ASSERT_EQ(pair.a.disconnect(active), 0);
  pair.b.expect(EventKind::kDisconnected);
  ASSERT_EQ(pair.b.disconnect(request.id), 0);
  pair.a.expect(EventKind::kDisconnected);
  pair.b.expect(EventKind::kTimewaitExit);
  pair.a.expect(EventKind::kTimewaitExit);

  uint32_t reported = 0;
  EXPECT_EQ(pair.a.destroy(active, &reported), 0);
  EXPECT_EQ(reported, 5u) << "address, route, response, disconnected, timewait";
  EXPECT_EQ(pair.b.destroy(request.id, &reported), 0);
  EXPECT_EQ(reported, 3u);
  EXPECT_EQ(pair.b.destroy(listener, &reported), 0);
  EXPECT_EQ(reported, 1u) << "CONNECT_REQUEST counts for the listener";
  EXPECT_EQ(pair.host_a.manager().ids(), 0u);
  EXPECT_EQ(pair.host_b.manager().ids(), 0u);
  EXPECT_EQ(pair.host_a.agent().bindings(), 0u);
  EXPECT_EQ(pair.host_b.agent().bindings(), 0u);
}

TEST(Connection, BothSidesKnowTheAddresses) {
  Pair pair;
  const auto connected = pair.connect();
  abi::QueryAddrAnswer at_a{}, at_b{};
  ASSERT_EQ(pair.a.query(connected.active, abi::kQueryAddr, at_a), 0);
  ASSERT_EQ(pair.b.query(connected.passive, abi::kQueryAddr, at_b), 0);
  EXPECT_EQ(at_a.src_addr, at_b.dst_addr);
  EXPECT_EQ(at_a.dst_addr, at_b.src_addr);
  EXPECT_EQ(at_a.src_size, 16);
  EXPECT_EQ(at_a.ibdev_index, 2u);
  EXPECT_EQ(at_b.ibdev_index, 3u);
  EXPECT_EQ(be64toh(at_b.node_guid), 0x1003u);
  EXPECT_EQ(at_a.port_num, 1);
  ASSERT_EQ(pair.b.query(connected.passive, abi::kQueryGid, at_b), 0);
  abi::SockaddrIb gid{};
  std::memcpy(&gid, at_b.src_addr.data(), sizeof(gid));
  EXPECT_EQ(gid.sib_addr, ip("192.0.2.2").bytes);
  abi::QueryPathAnswer path{};
  ASSERT_EQ(pair.a.query_path(connected.active, path), 0);
  EXPECT_EQ(path.num_paths, 1u);
  EXPECT_EQ(path.path_data[0].flags, abi::kPathFlags);
  EXPECT_EQ(path.path_data[0].path_rec[47], 64) << "hop limit: more than one router is possible";
  EXPECT_EQ(path.path_data[0].path_rec[54], 0x83) << "MTU 1024";
  EXPECT_EQ(std::memcmp(&path.path_data[0].path_rec[8], ip("192.0.2.2").bytes.data(), 16), 0);
  ASSERT_EQ(pair.b.query_path(connected.passive, path), 0);
  EXPECT_EQ(path.num_paths, 1u);
  abi::QueryRouteAnswer route{};
  ASSERT_EQ(pair.a.query_route(connected.active, route), 0);
  EXPECT_EQ(route.num_paths, 1u);
  EXPECT_EQ(route.ib_route[0].hop_limit, 64);
  EXPECT_EQ(route.ib_route[0].dgid, ip("192.0.2.2").bytes);
}

TEST(Connection, QpAttributesMeetEachOther) {
  Pair pair;
  const auto connected = pair.connect();
  abi::QpAttr a{}, b{};
  ASSERT_EQ(pair.a.init_qp_attr(connected.active, abi::kInit, a), 0);
  EXPECT_EQ(a.qp_attr_mask, 0x39u) << "state, access flags, P_Key index, port";
  EXPECT_EQ(a.qp_access_flags, 2u | 4u | 8u);
  ASSERT_EQ(pair.a.init_qp_attr(connected.active, abi::kRtr, a), 0);
  ASSERT_EQ(pair.b.init_qp_attr(connected.passive, abi::kRtr, b), 0);
  EXPECT_EQ(a.qp_attr_mask, 1u | 0x80 | 0x100 | 0x1000 | 0x8000 | 0x20000 | 0x100000);
  EXPECT_EQ(a.dest_qp_num, 0x222u);
  EXPECT_EQ(b.dest_qp_num, 0x111u);
  EXPECT_EQ(a.path_mtu, 3u);
  EXPECT_EQ(b.path_mtu, 3u);
  EXPECT_EQ(a.ah_attr.dgid, ip("192.0.2.2").bytes);
  EXPECT_EQ(b.ah_attr.dgid, ip("192.0.2.1").bytes);
  EXPECT_EQ(a.ah_attr.is_global, 1);
  EXPECT_EQ(b.max_dest_rd_atomic, 3) << "what accept said";
  const uint32_t a_receives = a.rq_psn, b_receives = b.rq_psn;
  ASSERT_EQ(pair.a.init_qp_attr(connected.active, abi::kRts, a), 0);
  ASSERT_EQ(pair.b.init_qp_attr(connected.passive, abi::kRts, b), 0);
  EXPECT_EQ(a.qp_attr_mask, 1u | 0x200 | 0x400 | 0x800 | 0x2000 | 0x10000);
  EXPECT_EQ(a.sq_psn, b_receives);
  EXPECT_EQ(b.sq_psn, a_receives);
  EXPECT_EQ(a.timeout, 19);
  EXPECT_EQ(a.retry_cnt, 5);
  EXPECT_EQ(b.retry_cnt, 5);
  EXPECT_EQ(b.max_rd_atomic, 2) << "what accept said";
  EXPECT_EQ(pair.a.init_qp_attr(connected.active, abi::kSqd, a), EINVAL);
  EXPECT_EQ(pair.a.init_qp_attr(connected.active, 7, a), EINVAL);
}

TEST(Connection, OptionsReachTheQp) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t id = pair.a.create(wire::PortSpace::kTcp);
  const uint8_t tos = 0x60, timeout = 14;
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionTos, &tos, 1), 0);
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionAckTimeout, &timeout, 1), 0);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", port)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  ASSERT_EQ(pair.a.resolve_route(id), 0);
  pair.a.expect(EventKind::kRouteResolved);
  ASSERT_EQ(pair.a.connect(id, 1), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  abi::QpAttr attr{};
  ASSERT_EQ(pair.b.init_qp_attr(passive, abi::kRtr, attr), 0);
  EXPECT_EQ(attr.ah_attr.traffic_class, 0x60);
  ASSERT_EQ(pair.b.accept(passive, 3, 2), 0);
  pair.a.expect(EventKind::kConnectResponse);
  ASSERT_EQ(pair.a.init_qp_attr(id, abi::kRts, attr), 0);
  EXPECT_EQ(attr.timeout, 14);
}

TEST(Connection, RejectedWithDataAndReason) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(pair.b.reject(passive, "no", 1), EINVAL) << "reasons of the connection manager are not the application's";
  EXPECT_EQ(pair.b.reject(passive, std::string(149, 'x')), EINVAL);
  ASSERT_EQ(pair.b.reject(passive, "no"), 0);
  const abi::Event rejected = pair.a.expect(EventKind::kRejected);
  EXPECT_EQ(rejected.status, 28u);
  EXPECT_EQ(rejected.param.conn.private_data_len, 148);
  EXPECT_EQ(data_of(rejected.param.conn).substr(0, 2), "no");
  EXPECT_EQ(pair.a.connect(active, 0x111), EINVAL) << "the id is spent";
}

TEST(Connection, NobodyListens) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port);
  ASSERT_EQ(pair.b.destroy(listener), 0);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  EXPECT_EQ(pair.a.expect(EventKind::kRejected).status, 8u);
}

TEST(Connection, PrivateDataHasItsLimits) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  EXPECT_EQ(pair.a.connect(active, 1, std::string(57, 'x')), EINVAL);
  ASSERT_EQ(pair.a.connect(active, 1, std::string(56, 'x')), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(pair.b.accept(passive, 3, 2, std::string(197, 'y')), EINVAL);
  EXPECT_EQ(pair.b.accept(passive, 3, 2, std::string(196, 'y')), 0);
  EXPECT_EQ(data_of(pair.a.expect(EventKind::kConnectResponse).param.conn), std::string(196, 'y'));
}

TEST(Connection, OfDatagrams) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port, 100, wire::PortSpace::kUdp);
  const uint32_t active = pair.route(port, 200, wire::PortSpace::kUdp);
  EXPECT_EQ(pair.a.connect(active, 1, std::string(181, 'x')), EINVAL);
  ASSERT_EQ(pair.a.connect(active, 1, "hello"), 0);
  const abi::Event request = pair.b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(request.param.ud.private_data_len, 180);
  EXPECT_EQ(std::memcmp(request.param.ud.private_data.data(), "hello", 5), 0);
  ASSERT_EQ(pair.b.accept(request.id, 300, 0x222, "world"), 0);
  const abi::Event established = pair.a.expect(EventKind::kEstablished);
  EXPECT_EQ(established.param.ud.qp_num, 0x222u);
  EXPECT_EQ(established.param.ud.qkey, 0x01234567u) << "whatever was asked for";
  EXPECT_EQ(established.param.ud.private_data_len, 136);
  EXPECT_EQ(established.param.ud.ah_attr.dgid, ip("192.0.2.2").bytes);
  EXPECT_EQ(established.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(established.param.ud.ah_attr.port_num, 1);
  abi::QpAttr attr{};
  ASSERT_EQ(pair.a.init_qp_attr(active, abi::kInit, attr), 0);
  EXPECT_EQ(attr.qkey, 0x01234567u);
  EXPECT_EQ(attr.qp_attr_mask, 1u | 0x10 | 0x20 | 0x40);
}

TEST(Connection, DatagramsRefused) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port, 100, wire::PortSpace::kUdp);
  const uint32_t first = pair.route(port, 200, wire::PortSpace::kUdp);
  ASSERT_EQ(pair.a.connect(first, 1), 0);
  ASSERT_EQ(pair.b.reject(pair.b.expect(EventKind::kConnectRequest).id, "no"), 0);
  const abi::Event refused = pair.a.expect(EventKind::kUnreachable);
  EXPECT_EQ(refused.status, 2u);
  EXPECT_EQ(std::memcmp(refused.param.ud.private_data.data(), "no", 2), 0);
  ASSERT_EQ(pair.b.destroy(listener), 0);
  const uint32_t second = pair.route(port, 201, wire::PortSpace::kUdp);
  ASSERT_EQ(pair.a.connect(second, 1), 0);
  EXPECT_EQ(pair.a.expect(EventKind::kUnreachable).status, 1u);
}

TEST(Connection, FirstPacketStandsForARtuThatIsLost) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  ASSERT_EQ(pair.b.accept(passive, 300, 0x222), 0);
  pair.a.expect(EventKind::kConnectResponse);
  pair.wire.lose(wire::CmAttribute::kRtu);
  ASSERT_EQ(pair.a.confirm(active), 0);
  EXPECT_FALSE(pair.b.readable(300));
  pair.host_b.receive_for(0x222);
  pair.b.expect(EventKind::kEstablished);
  EXPECT_EQ(pair.b.notify(passive, abi::kNotifyCommEstablished), EISCONN);
}

TEST(Connection, NotifyEstablishes) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  EXPECT_EQ(pair.a.notify(active, abi::kNotifyCommEstablished), EINVAL) << "there is no connection yet";
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  ASSERT_EQ(pair.b.accept(passive, 300, 0x222), 0);
  pair.a.expect(EventKind::kConnectResponse);
  EXPECT_EQ(pair.b.notify(passive, 5), EINVAL);
  EXPECT_EQ(pair.b.notify(passive, abi::kNotifyCommEstablished), 0);
  pair.b.expect(EventKind::kEstablished);
}

TEST(Connection, NobodyHearsOfAChildThatWasNotAccepted) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  ASSERT_EQ(pair.a.destroy(active), 0);  // REJ
  EXPECT_FALSE(pair.b.readable(200));
  EXPECT_EQ(pair.b.accept(passive, 300, 0x222), EINVAL);
  EXPECT_EQ(pair.b.destroy(passive), 0);
}

TEST(Connection, ClosingTheFileEndsAll) {
  Pair pair;
  const auto connected = pair.connect();
  pair.b.close();
  EXPECT_EQ(pair.host_b.manager().ids(), 0u) << "when close() returns";
  EXPECT_EQ(pair.host_b.agent().bindings(), 0u);
  pair.a.expect(EventKind::kDisconnected);
  EXPECT_EQ(pair.a.destroy(connected.active), 0);
}

TEST(Connection, DestroyedListenerTakesUnreadRequestsAlong) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  ASSERT_TRUE(pair.b.readable(10'000));
  EXPECT_EQ(pair.host_b.manager().ids(), 2u);
  EXPECT_EQ(pair.b.destroy(listener + 1), ENOENT) << "not known before the event is read";
  uint32_t reported = 1;
  EXPECT_EQ(pair.b.destroy(listener, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_EQ(pair.host_b.manager().ids(), 0u);
  EXPECT_FALSE(pair.b.readable());
  EXPECT_EQ(pair.a.expect(EventKind::kRejected).id, active);
}

TEST(Connection, ChildMovesToAChannelOfItsOwn) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port);
  const uint32_t active = pair.route(port);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  Client other(pair.host_b.manager());
  uint32_t reported = 1;
  ASSERT_EQ(other.migrate(pair.b, passive, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_EQ(pair.b.accept(passive, 300, 0x222), EINVAL) << "another channel's";
  ASSERT_EQ(other.accept(passive, 300, 0x222), 0);
  pair.a.expect(EventKind::kConnectResponse);
  ASSERT_EQ(pair.a.confirm(active), 0);
  other.expect(EventKind::kEstablished);
  EXPECT_FALSE(pair.b.readable());
}

TEST(Connection, OverIpv6AndLinkLocalAddresses) {
  Pair pair;
  const uint32_t listener = pair.b.create(wire::PortSpace::kTcp, 100);
  ASSERT_EQ(pair.b.bind(listener, sockaddr_of("::", 0)), 0);
  ASSERT_EQ(pair.b.listen(listener), 0);
  const uint16_t port = pair.b.port_of(listener);
  for (const auto& [to, from, scope] : {std::tuple("2001:db8::2", "2001:db8::1", 0u), {"fe80::2", "fe80::1", 2u}}) {
    const uint32_t id = pair.a.create(wire::PortSpace::kTcp, 200);
    ASSERT_EQ(pair.a.resolve(id, sockaddr_of(to, port, scope)), 0) << to;
    pair.a.expect(EventKind::kAddrResolved);
    ASSERT_EQ(pair.a.resolve_route(id), 0);
    pair.a.expect(EventKind::kRouteResolved);
    ASSERT_EQ(pair.a.connect(id, 0x111), 0);
    const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
    abi::QueryAddrAnswer at{};
    ASSERT_EQ(pair.b.query(passive, abi::kQueryAddr, at), 0);
    EXPECT_EQ(at.src_size, 28);
    EXPECT_EQ(parse_address(at.dst_addr).ip, ip(from));
    EXPECT_EQ(parse_address(at.dst_addr).scope, scope == 0 ? 0u : 3u) << "its own netdev";
    ASSERT_EQ(pair.b.reject(passive, ""), 0);
    pair.a.expect(EventKind::kRejected);
  }
  // The wildcard takes IPv4 too.
  const uint32_t v4 = pair.route(port);
  ASSERT_EQ(pair.a.connect(v4, 0x111), 0);
  pair.b.expect(EventKind::kConnectRequest);
}

TEST(Connection, OutlivesTheBroker) {
  Pair pair;
  const auto connected = pair.connect();
  const uint16_t port = pair.b.port_of(connected.listener);
  const uint32_t trying = pair.route(port);
  ASSERT_EQ(pair.a.connect(trying, 0x112), 0);
  const uint32_t unaccepted = pair.b.expect(EventKind::kConnectRequest).id;
  pair.host_a.agent().lose();
  EXPECT_EQ(pair.a.expect(EventKind::kUnreachable).id, trying);
  pair.host_b.agent().lose();
  const uint32_t meanwhile = pair.b.create(wire::PortSpace::kTcp);
  EXPECT_EQ(pair.b.bind(meanwhile, sockaddr_of("0.0.0.0", 0)), ENOTCONN);
  pair.host_a.agent().restore();
  pair.host_b.agent().restore();
  // The listener has its port again, and the connection can be ended.
  const auto connects = [&] {
    const uint32_t again = pair.route(port);
    EXPECT_EQ(pair.a.connect(again, 0x113), 0);
    const bool listened = pair.a.readable(100) ? pair.a.next().event != uint32_t(EventKind::kRejected) : true;
    EXPECT_EQ(pair.a.destroy(again), 0);
    return listened;
  };
  while (!connects()) std::this_thread::yield();
  pair.b.expect(EventKind::kConnectRequest);
  EXPECT_EQ(pair.b.accept(unaccepted, 301, 0x223), EINVAL);
  EXPECT_EQ(pair.a.disconnect(connected.active), 0);
  pair.b.expect(EventKind::kDisconnected);
}

// In Linux rdma_disconnect() fails only for an id that never had a connection.
TEST(Connection, DisconnectIsNoErrorWhateverHasBecomeOfIt) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port);
  EXPECT_EQ(pair.b.disconnect(listener), EINVAL) << "bound to no device";
  const uint32_t rejected = pair.route(port);
  EXPECT_EQ(pair.a.disconnect(rejected), EINVAL) << "there was none yet";
  ASSERT_EQ(pair.a.connect(rejected, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(pair.b.reject(passive, ""), 0);
  EXPECT_EQ(pair.b.disconnect(passive), 0);
  pair.a.expect(EventKind::kRejected);
  EXPECT_EQ(pair.a.disconnect(rejected), 0);
  EXPECT_EQ(pair.a.disconnect(rejected), 0);
  const uint32_t of_address = pair.b.create(wire::PortSpace::kTcp);
  ASSERT_EQ(pair.b.bind(of_address, sockaddr_of("192.0.2.2", 0)), 0);
  EXPECT_EQ(pair.b.disconnect(of_address), EINVAL);
  ASSERT_EQ(pair.b.listen(of_address), 0);
  EXPECT_EQ(pair.b.disconnect(of_address), 0);
}

// Nobody can be told. Programs wait for the event: it comes from the next broker.
TEST(Connection, DisconnectsWithoutABroker) {
  Pair pair;
  const auto connected = pair.connect();
  const uint32_t trying = pair.route(pair.b.port_of(connected.listener));
  ASSERT_EQ(pair.a.connect(trying, 0x112), 0);
  pair.b.expect(EventKind::kConnectRequest);
  pair.host_a.agent().lose();
  pair.a.expect(EventKind::kUnreachable);
  EXPECT_EQ(pair.a.disconnect(trying), 0);
  EXPECT_EQ(pair.a.disconnect(connected.active), 0);
  EXPECT_EQ(pair.a.disconnect(connected.active), 0) << "twice is once";
  EXPECT_FALSE(pair.a.readable(50));
  pair.host_a.agent().restore();
  pair.b.expect(EventKind::kDisconnected);
  ASSERT_EQ(pair.b.disconnect(connected.passive), 0);
  EXPECT_EQ(pair.a.expect(EventKind::kDisconnected).id, connected.active);
}

TEST(Connection, DisconnectsWhatTheNextBrokerDoesNotTake) {
  Pair pair;
  const auto connected = pair.connect();
  pair.host_a.agent().lose();
  EXPECT_EQ(pair.a.disconnect(connected.active), 0);
  pair.host_a.view().remove_address(2, "192.0.2.1");
  pair.host_a.agent().restore();
  const abi::Event event = pair.a.expect(EventKind::kDisconnected);
  EXPECT_EQ(event.id, connected.active);
  EXPECT_EQ(static_cast<int32_t>(event.status), -ETIMEDOUT);
  EXPECT_EQ(pair.a.disconnect(connected.active), 0);
  EXPECT_FALSE(pair.a.readable(50)) << "once";
}

TEST(Connection, AQpCannotLeaveFromAnAddressThatIsGone) {
  Pair pair;
  const auto connected = pair.connect();
  abi::QpAttr attributes{};
  ASSERT_EQ(pair.a.init_qp_attr(connected.active, abi::kRtr, attributes), 0);
  EXPECT_EQ(attributes.ah_attr.sgid_index, 0);
  pair.host_a.view().remove_address(2, "192.0.2.1");
  EXPECT_EQ(pair.a.init_qp_attr(connected.active, abi::kRtr, attributes), EINVAL);
  EXPECT_EQ(pair.a.init_qp_attr(connected.active, abi::kRts, attributes), 0) << "has no address in it";
  EXPECT_FALSE(pair.a.readable(50)) << "Linux says nothing of it either";
}

// Of datagrams the address is in the event.
TEST(Connection, DatagramsFromAnAddressThatIsGone) {
  Pair pair;
  uint16_t port = 0;
  pair.listen(port, 100, wire::PortSpace::kUdp);
  const uint32_t active = pair.route(port, 200, wire::PortSpace::kUdp);
  ASSERT_EQ(pair.a.connect(active, 0x111), 0);
  const uint32_t passive = pair.b.expect(EventKind::kConnectRequest).id;
  pair.host_a.view().remove_gid(2, "192.0.2.1");
  ASSERT_EQ(pair.b.accept(passive, 300, 0x222), 0);
  EXPECT_EQ(static_cast<int32_t>(pair.a.expect(EventKind::kUnreachable).status), -EADDRNOTAVAIL);
  uint32_t group = 0;
  const uint32_t member = pair.a.create(wire::PortSpace::kUdp, 1);
  ASSERT_EQ(pair.a.bind(member, sockaddr_of("2001:db8::1", 0)), 0);
  pair.host_a.view().remove_address(2, "2001:db8::1");
  ASSERT_EQ(pair.a.join(member, sockaddr_of("239.1.2.3", 0), 7, group), 0);
  EXPECT_EQ(static_cast<int32_t>(pair.a.expect(EventKind::kMulticastError).status), -ENODEV);
}

// Memory runs out for the thread: what it was to do is still due, and it must not ask for it in a busy loop.
TEST(Connection, TheThreadTakesBreathWhenThereIsNoMemory) {
  Pair pair;
  const auto connected = pair.connect();
  pair.host_a.view().fail(true);
  ASSERT_EQ(pair.b.disconnect(connected.passive), 0);
  while (pair.host_a.view().failures() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // in which it could fail a million times
  EXPECT_LT(pair.host_a.view().failures(), 100u);
  pair.host_a.view().fail(false);
  pair.a.expect(EventKind::kDisconnected);
}

}  // namespace
}  // namespace uroce::rdma_cm::test

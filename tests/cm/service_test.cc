// SPDX-License-Identifier: BSD-2-Clause
// What clients may and may not do (cm/service.h), and what becomes of bindings and listeners.
#include "cm/service.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <set>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

constexpr uint32_t kNetdev = 3, kOtherNetdev = 4;
constexpr wire::Guid kGuid{0x1234};

class ServiceTest : public testing::Test, public Surroundings, public Output {
 public:
  bool has_address(uint32_t netdev, const wire::IpAddress& address) override {
    if (address == v4(1) || address == v6(1) || address == link_local(1)) return netdev == 0 || netdev == kNetdev;
    return address == v4(2) && (netdev == 0 || netdev == kOtherNetdev);
  }
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) override {
    asked.push_back(remote);
    EXPECT_EQ(netdev, kNetdev);
    EXPECT_EQ(local, v4(1));
    return unreached != remote;
  }
  wire::Guid guid(uint32_t netdev) override { return netdev == kNetdev ? kGuid : wire::Guid{}; }
  bool is_others_qpn(ClientId client, wire::Qpn qpn) override {
    return qpn.value() == 0x1000 && client != kAlice;  // Alice's
  }
  bool is_privileged(ClientId client) override { return client == kAlice; }
  PortRange port_range() override { return {40000, 40009}; }
  Account account_of(ClientId client) override { return {UserId{client == kAlice ? 0U : 1U}, client == kAlice}; }

  void send(const Datagram& datagram) override { sent.push_back(datagram); }
  void on_event(const Event& event) override { events.push_back(event); }

  Reply ask(const Request& request, ClientId client = kAlice) { return service.ask(client, request, now); }
  Reply bind(uint16_t port, ClientId client = kAlice, wire::IpAddress address = {}) {
    return ask(BindRequest{{.address = address, .port = port}}, client);
  }
  Reply listen(BindingId binding, uint16_t port, ClientId client = kAlice) {
    return ask(ListenRequest{binding, {.service = wire::service_id(wire::PortSpace::kTcp, port)}}, client);
  }
  static Connect connection(uint32_t qpn = 5) {
    return {.service = wire::service_id(wire::PortSpace::kTcp, kPort),
            .path = {.netdev = kNetdev, .ca_guid = wire::Guid{0xbad}, .local = v4(1), .remote = v4(9)},
            .parameters = {.qpn = wire::Qpn(qpn)}};
  }
  static Adopt adoption() {
    return {.id = Id{100},
            .remote_id = Id{200},
            .local_qpn = wire::Qpn(5),
            .qp = {.path = connection().path, .remote_guid = wire::Guid{9}, .dest_qpn = wire::Qpn(6)}};
  }
  // From 10.0.0.9, with this local GID.
  wire::Req request(wire::IpAddress gid = v4(9)) {
    wire::Req req;
    req.local_id = Id{++last_request};
    req.service_id = wire::service_id(wire::PortSpace::kTcp, kPort);
    req.qpn = wire::Qpn(last_request);
    req.path_mtu = 3;
    req.primary.local_gid = gid;
    wire::CmaHeader{.source = gid, .destination = v4(1)}.emit(req.private_data.data());
    return req;
  }
  Datagram datagram(const wire::CmMessage& message) {
    return {.netdev = kNetdev,
            .ca_guid = kGuid,
            .source = v4(9),
            .destination = v4(1),
            .mad = wire::emit_cm({.transaction = wire::TransactionId{++transaction}, .message = message})};
  }
  void arrive(const wire::CmMessage& message) { service.on_datagram(datagram(message), now); }
  template <class Message>
  Message last_sent() {
    wire::CmMad mad;
    if (sent.empty() || wire::parse_cm(sent.back().mad, mad) != wire::CmParseError::kNone ||
        !std::holds_alternative<Message>(mad.message)) {
      ADD_FAILURE() << "no such message";
      return {};
    }
    return std::get<Message>(mad.message);
  }

  Time now{1s};
  std::mt19937 random;
  Service service{{}, [this] { return static_cast<uint32_t>(random()); }, *this, *this};
  std::vector<Datagram> sent;
  std::vector<Event> events;
  std::vector<wire::IpAddress> asked;
  wire::IpAddress unreached;
  uint32_t last_request = 0;
  uint64_t transaction = 0;
};

using CmPorts = ServiceTest;

TEST_F(CmPorts, AreOfOwnAddresses) {
  EXPECT_EQ(bind(kPort, kAlice, v4(1)).error, 0);
  EXPECT_EQ(bind(kPort + 1, kAlice, v4(2)).error, 0) << "of any netdev";
  EXPECT_EQ(bind(kPort + 2, kAlice, v4(77)).error, EADDRNOTAVAIL);
  EXPECT_EQ(ask(BindRequest{{.address = link_local(1), .v4 = false, .netdev = kOtherNetdev, .port = 7}}).error,
            EADDRNOTAVAIL);
  const uint8_t loopback[] = {127, 0, 0, 1};
  EXPECT_EQ(bind(kPort + 3, kAlice, wire::IpAddress::v4(loopback)).error, 0);
}

// One address said in two ways would be two places, and who says it in the more special way got the requests of the
// other.
TEST_F(CmPorts, AnAddressCanBeSaidInOneWay) {
  EXPECT_EQ(bind(kPort, kAlice, v4(1)).error, 0);
  EXPECT_EQ(ask(BindRequest{{.address = v4(1), .netdev = kNetdev, .port = kPort}}, kBob).error, EINVAL);
  EXPECT_EQ(ask(BindRequest{{.address = v4(1), .v4 = false, .port = kPort}}, kBob).error, EADDRINUSE);
  EXPECT_EQ(ask(BindRequest{{.address = v4(1), .v4 = false, .port = kPort + 1}}, kBob).error, 0) << "said by IPv6";
  EXPECT_EQ(ask(BindRequest{{.address = link_local(1), .v4 = true, .netdev = kNetdev, .port = kPort}}, kBob).error,
            EINVAL);
  EXPECT_EQ(ask(BindRequest{{.netdev = kNetdev, .port = kPort}}, kBob).error, EINVAL);
  const uint8_t bytes[] = {127, 0, 0, 1};
  const wire::IpAddress loopback = wire::IpAddress::v4(bytes);
  const Reply bound = bind(kPort, kBob, loopback);
  ASSERT_EQ(bound.error, 0);
  ListenRequest elsewhere{
      bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, kPort), .address = v4(1), .netdev = kNetdev}};
  EXPECT_EQ(ask(elsewhere, kBob).error, EPERM);
  elsewhere.listen.address = {};
  EXPECT_EQ(ask(elsewhere, kBob).error, EPERM) << "nor at all addresses";
}

TEST_F(CmPorts, BelowThousandAreForThePrivilegedWhateverTheClientSays) {
  EXPECT_EQ(bind(80).error, 0);
  EXPECT_EQ(ask(BindRequest{{.port = 81, .privileged = true}}, kBob).error, EACCES);
}

TEST_F(CmPorts, ComeFromTheHostsRange) {
  const Reply any = bind(0);
  EXPECT_GE(any.port, 40000);
  EXPECT_LE(any.port, 40009);
}

TEST_F(CmPorts, AListenerIsOfItsBinding) {
  const Reply bound = bind(kPort);
  ASSERT_EQ(bound.error, 0);
  EXPECT_EQ(listen(bound.binding, kPort + 1).error, EPERM) << "another port";
  EXPECT_EQ(listen(bound.binding, kPort, kBob).error, ENOENT) << "somebody else's binding";
  ListenRequest masked{bound.binding,
                       {.service = wire::service_id(wire::PortSpace::kTcp, kPort), .service_mask = ~uint64_t{0xffff}}};
  EXPECT_EQ(ask(masked).error, EPERM);
  EXPECT_EQ(listen(bound.binding, kPort).error, 0);
  EXPECT_EQ(bind(kPort, kBob).error, EADDRNOTAVAIL);
}

TEST_F(CmPorts, AListenersAddressIsItsBindings) {
  const Reply bound = bind(kPort, kAlice, v4(1));
  const auto with = [&](wire::IpAddress address) {
    return ask(ListenRequest{bound.binding,
                             {.service = wire::service_id(wire::PortSpace::kTcp, kPort), .address = address}})
        .error;
  };
  EXPECT_EQ(with({}), EPERM) << "all addresses are more than the binding has";
  EXPECT_EQ(with(v4(2)), EPERM);
  EXPECT_EQ(with(v4(1)), 0);
}

TEST_F(CmPorts, AListenerTakesTheVersionsOfItsBinding) {
  const Reply v4_only = ask(BindRequest{{.v4 = true, .port = kPort}});
  const Reply v6_only = ask(BindRequest{{.v4 = false, .v6_only = true, .port = kPort}}, kBob);
  ASSERT_EQ(v6_only.error, 0);
  EXPECT_EQ(listen(v4_only.binding, kPort).error, 0);
  EXPECT_EQ(listen(v6_only.binding, kPort, kBob).error, 0) << "both have said that they take all";
}

TEST_F(CmPorts, WithoutBindingOnlyServicesThatNoPortStandsFor) {
  const auto without = [&](uint64_t id, uint64_t mask) {
    return ask(ListenRequest{kNoBinding, {.service = wire::ServiceId{id}, .service_mask = mask, .ip = false}}).error;
  };
  EXPECT_EQ(without(0x01061d2f, UINT64_MAX), EPERM);
  EXPECT_EQ(without(0x013f0001, UINT64_MAX), EPERM);
  EXPECT_EQ(without(0x1000000001061d2f, UINT64_MAX >> 4), EPERM) << "others' ports are among them";
  EXPECT_EQ(without(0, 0), EPERM);
  EXPECT_EQ(without(0x1000000001061d2f, UINT64_MAX), 0);
}

TEST_F(CmPorts, WithABindingItsListenersGo) {
  const Reply bound = bind(kPort);
  const Reply listener = listen(bound.binding, kPort);
  ASSERT_EQ(listener.error, 0);
  arrive(request());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(ask(ReleaseRequest{bound.binding}, kBob).error, ENOENT);
  EXPECT_EQ(ask(ReleaseRequest{bound.binding}).error, 0);
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kConsumer) << "the request that nobody had taken";
  EXPECT_EQ(ask(DestroyRequest{listener.id}).error, ENOENT);
  const Reply others = bind(kPort, kBob);
  EXPECT_EQ(others.error, 0) << "the port is free";
  EXPECT_EQ(ask(ReleaseRequest{others.binding}, kBob).error, 0);
  now += WaitingRequests::kMemory;
  arrive(request());
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kServiceId);
}

// As a program has it that tells its peer the port and listens then.
TEST_F(CmPorts, ARequestWaitsForWhoHasThePortToListen) {
  const Reply bound = bind(kPort);
  arrive(request());
  EXPECT_TRUE(sent.empty());
  const Reply listener = listen(bound.binding, kPort);
  EXPECT_LE(service.deadline(), now) << "the owner is to look at once";
  service.on_timer(now);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].listener, listener.id);
  // Who does not listen in the end.
  EXPECT_EQ(ask(ReleaseRequest{bound.binding}).error, 0);
  now += WaitingRequests::kMemory;
  ASSERT_EQ(bind(kPort).error, 0);
  sent.clear();
  arrive(request());
  EXPECT_TRUE(sent.empty());
  now += WaitingRequests::kPatience;
  service.on_timer(now);
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kServiceId);
}

TEST_F(CmPorts, AreFreeAtOnceWhenTheirClientEnds) {
  const Reply bound = bind(kPort);
  ASSERT_EQ(listen(bound.binding, kPort).error, 0);
  service.end_client(kAlice, now);
  EXPECT_EQ(service.ports().size(), 0u);
  EXPECT_EQ(service.manager().size(), 0u);
  const Reply next = bind(kPort, kBob);
  EXPECT_EQ(listen(next.binding, kPort, kBob).error, 0);
}

// Of one that leaves much: in slices, and a port only when nobody listens there any more.
TEST_F(CmPorts, AreFreeWhenTheIdsOfTheirClientHaveEnded) {
  const uint32_t in_a_turn = Limits{}.ended_in_a_turn;
  for (uint32_t i = 0; i < 3 * in_a_turn; ++i) {
    const auto port = static_cast<uint16_t>(2000 + i);
    ASSERT_EQ(listen(bind(port).binding, port).error, 0);
  }
  service.end_client(kAlice, now);
  EXPECT_EQ(service.manager().size(), 2 * in_a_turn);
  EXPECT_EQ(service.ports().size(), 3 * in_a_turn);
  EXPECT_EQ(bind(2000).error, EADDRNOTAVAIL) << "whoever has its number";
  EXPECT_EQ(bind(7000).error, 0) << "has ports of its own";
  int turns = 0;
  for (; service.is_ending(); ++turns) {
    EXPECT_LE(service.deadline(), now);
    const size_t ids = service.manager().size(), ports = service.ports().size();
    service.on_timer(now);
    EXPECT_LE(ids - service.manager().size(), in_a_turn);
    EXPECT_LE(ports - service.ports().size(), in_a_turn);
  }
  EXPECT_LE(turns, 5);
  EXPECT_EQ(service.ports().size(), 1u) << "the new one's";
  EXPECT_EQ(listen(bind(2000, kBob).binding, 2000, kBob).error, 0);
}

TEST_F(CmPorts, OfAUserAreAsManyAsOthersLeave) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bind(0, ClientId{10U + static_cast<uint64_t>(i)}).error, 0);
  EXPECT_EQ(bind(0, kBob).error, ENFILE);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bind(0).error, 0) << "root";
  EXPECT_EQ(bind(0).error, EADDRNOTAVAIL);
}

TEST_F(CmPorts, AListenerIsOfANetdevThatThereIs) {
  const auto on = [&](uint32_t netdev) {
    return ask(ListenRequest{kNoBinding,
                             {.service = wire::ServiceId{0x1000000000000001}, .ip = false, .netdev = netdev}})
        .error;
  };
  EXPECT_EQ(on(kNetdev), 0);
  EXPECT_EQ(on(77), ENODEV);
}

// A listener that could not be is not left behind.
TEST_F(CmPorts, AListenThatFailsLeavesNothing) {
  const Reply first = ask(BindRequest{{.port = kPort, .reuse_address = true}});
  const Reply second = ask(BindRequest{{.port = kPort, .reuse_address = true}}, kBob);
  ASSERT_EQ(second.error, 0);
  EXPECT_EQ(listen(first.binding, kPort).error, EADDRNOTAVAIL);
  EXPECT_EQ(service.manager().size(), 0u);
}

using CmRights = ServiceTest;

TEST_F(CmRights, APathIsOneOfThisHosts) {
  Connect connect = connection();
  connect.path.local = v4(2);
  EXPECT_EQ(ask(ConnectRequest{connect}).error, EADDRNOTAVAIL) << "of another netdev";
  connect.path.netdev = kOtherNetdev;
  EXPECT_EQ(ask(ConnectRequest{connect}).error, ENODEV) << "which has no device";
  connect = connection();
  connect.path.netdev = 0;
  EXPECT_EQ(ask(ConnectRequest{connect}).error, EADDRNOTAVAIL);
  EXPECT_TRUE(sent.empty());
}

TEST_F(CmRights, WhatReqHasNoBitsForIsRefused) {
  for (void (*const change)(Path&) :
       {+[](Path& p) { p.mtu = 6; }, +[](Path& p) { p.mtu = 0; }, +[](Path& p) { p.flow_label = 1 << 20; },
        +[](Path& p) { p.sl = 16; }, +[](Path& p) { p.rate = 64; }, +[](Path& p) { p.ack_timeout = 32; }}) {
    Connect connect = connection();
    change(connect.path);
    EXPECT_EQ(ask(ConnectRequest{connect}).error, EINVAL);
  }
}

TEST_F(CmRights, TheGuidIsTheServicesToSay) {
  EXPECT_EQ(ask(ConnectRequest{connection()}).error, 0);
  EXPECT_EQ(last_sent<wire::Req>().ca_guid, kGuid);
}

TEST_F(CmRights, OthersQpsAreTheirs) {
  EXPECT_EQ(ask(ConnectRequest{connection(0x1000)}, kBob).error, EPERM);
  EXPECT_EQ(ask(ConnectRequest{connection(0x1000)}, kAlice).error, 0);
  Adopt adopt = adoption();
  adopt.local_qpn = wire::Qpn(0x1000);
  EXPECT_EQ(ask(adopt, kBob).error, EPERM);
  const Reply bound = bind(kPort, kBob);
  ASSERT_EQ(listen(bound.binding, kPort, kBob).error, 0);
  arrive(request());
  EXPECT_EQ(ask(AcceptRequest{events.back().id, {.parameters = {.qpn = wire::Qpn(0x1000)}}}, kBob).error, EPERM);
  EXPECT_EQ(ask(AcceptRequest{events.back().id, {.parameters = {.qpn = wire::Qpn(0x1001)}}}, kBob).error, 0);
}

using CmSources = ServiceTest;

TEST_F(CmSources, ARequestComesFromWhereTheNetdevLeads) {
  const Reply bound = bind(kPort);
  ASSERT_EQ(listen(bound.binding, kPort).error, 0);
  unreached = v4(9);
  arrive(request());
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kConsumer);
  EXPECT_EQ(service.manager().counters().get(Counter::kNotReached), 1u);
  unreached = v4(8);
  arrive(request());
  EXPECT_EQ(events.size(), 1u);
}

// Data is not sent to whoever has not asked for it.
TEST_F(CmSources, ARequestIsForWhoSendsIt) {
  const Reply bound = bind(kPort);
  ASSERT_EQ(listen(bound.binding, kPort).error, 0);
  arrive(request(v4(8)));
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kGid);
}

TEST_F(CmSources, OrForAnotherAddressWhereThatIsWanted) {
  Service trusting{{.takes_other_gids = true}, [this] { return static_cast<uint32_t>(random()); }, *this, *this};
  const Reply bound = trusting.ask(kAlice, BindRequest{{.port = kPort}}, now);
  const ListenRequest listen{bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, kPort)}};
  ASSERT_EQ(trusting.ask(kAlice, listen, now).error, 0);
  unreached = v4(8);
  trusting.on_datagram(datagram(request(v4(8))), now);
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(last_sent<wire::Rej>().reason, wire::RejReason::kGid) << "but only where the netdev leads";
  trusting.on_datagram(datagram(request(v4(7))), now);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].qp.path.remote, v4(7));
}

TEST_F(CmSources, TheKernelIsAskedForListenersOnly) {
  arrive(request());
  EXPECT_TRUE(asked.empty()) << "nobody listens";
}

TEST_F(CmSources, ADatagramServiceLikewise) {
  const Reply bound = ask(BindRequest{{.space = wire::PortSpace::kUdp, .port = kPort}});
  ASSERT_EQ(
      ask(ListenRequest{bound.binding, {.service = wire::service_id(wire::PortSpace::kUdp, kPort), .datagrams = true}})
          .error,
      0);
  wire::SidrReq req;
  req.request_id = Id{5};
  req.service_id = wire::service_id(wire::PortSpace::kUdp, kPort);
  wire::CmaHeader{.source = v4(9), .destination = v4(1)}.emit(req.private_data.data());
  unreached = v4(9);
  arrive(req);
  EXPECT_EQ(last_sent<wire::SidrRep>().status, wire::SidrStatus::kReject);
  EXPECT_TRUE(events.empty());
}

class CmAdoption : public ServiceTest {
 protected:
  // Of the connection in adoption(), to a listener of Alice's.
  void request_from_the_same_qp() {
    ASSERT_EQ(listen(bind(kPort).binding, kPort).error, 0);
    wire::Req req = request();
    req.ca_guid = wire::Guid{9};
    req.qpn = wire::Qpn(6);
    arrive(req);
  }
};

TEST_F(CmAdoption, AConnectionIsEstablishedFromThenOn) {
  ASSERT_EQ(ask(adoption()).error, 0);
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(ask(adoption()).error, EEXIST);
  EXPECT_EQ(ask(DisconnectRequest{Id{100}, {}}).error, 0);
  const auto dreq = last_sent<wire::Dreq>();
  EXPECT_EQ(dreq.local_id, Id{100});
  EXPECT_EQ(dreq.remote_id, Id{200});
  EXPECT_EQ(dreq.remote_qpn, wire::Qpn(6));
  EXPECT_EQ(sent.back().destination, v4(9));
}

TEST_F(CmAdoption, TheOtherSideCanEndIt) {
  ASSERT_EQ(ask(adoption()).error, 0);
  wire::Dreq dreq;
  dreq.local_id = Id{200};
  dreq.remote_id = Id{100};
  dreq.remote_qpn = wire::Qpn(5);
  arrive(dreq);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.back().kind, EventKind::kDisconnected);
}

TEST_F(CmAdoption, ARequestOfTheSameQpFindsItStale) {
  ASSERT_EQ(ask(adoption()).error, 0);
  request_from_the_same_qp();
  EXPECT_TRUE(events.empty());
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(last_sent<wire::Dreq>().local_id, Id{100});
}

// Anybody can say that he has a connection with that QP.
TEST_F(CmAdoption, ARequestOfTheSameQpToAnotherUserIsNot) {
  ASSERT_EQ(ask(adoption(), kBob).error, 0);
  request_from_the_same_qp();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.back().kind, EventKind::kConnectRequest);
  EXPECT_TRUE(sent.empty());
}

TEST_F(CmAdoption, WhatIsNoConnectionIsRefused) {
  for (void (*const change)(Adopt&) :
       {+[](Adopt& a) { a.id = kNoId; }, +[](Adopt& a) { a.remote_id = kNoId; },
        +[](Adopt& a) { a.transport = Transport::kUd; }, +[](Adopt& a) { a.qp.path.remote = {}; }}) {
    Adopt adopt = adoption();
    change(adopt);
    EXPECT_EQ(ask(adopt).error, EINVAL);
  }
  Adopt adopt = adoption();
  adopt.qp.path.local = v4(77);
  EXPECT_EQ(ask(adopt).error, EADDRNOTAVAIL);
  EXPECT_EQ(service.manager().size(), 0u);
}

// All of it: what the events say is enough for another connection manager to go on with the connection.
TEST_F(CmAdoption, EventsSayWhatItTakes) {
  const Reply bound = bind(kPort);
  ASSERT_EQ(listen(bound.binding, kPort).error, 0);
  wire::Req req = request();
  req.ca_guid = wire::Guid{55};
  arrive(req);
  const Event requested = events.back();
  EXPECT_EQ(requested.remote_id, req.local_id);
  EXPECT_EQ(requested.qp.remote_guid, wire::Guid{55});
  ASSERT_EQ(ask(AcceptRequest{requested.id, {.parameters = {.qpn = wire::Qpn(5)}}}).error, 0);
  Service later{{}, [this] { return static_cast<uint32_t>(random()); }, *this, *this};
  const Adopt adopt{
      .id = requested.id, .remote_id = requested.remote_id, .local_qpn = wire::Qpn(5), .qp = requested.qp};
  EXPECT_EQ(later.ask(kAlice, adopt, now).error, 0);
}

}  // namespace
}  // namespace uroce::cm::test

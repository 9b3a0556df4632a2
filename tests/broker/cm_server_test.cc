// SPDX-License-Identifier: BSD-2-Clause
// The broker's connection manager and what several clients of it may do to each other: one host, two netdevs, time that
// passes as the tests say.
#include "broker/cm_server.h"

#include <array>
#include <cerrno>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <sys/socket.h>

#include "engine/base/clock.h"
#include "engine/base/concat.h"
#include "engine/base/message_socket.h"
#include "tests/broker/fake_view.h"

namespace uroce::broker {
namespace {

using namespace std::chrono_literals;

constexpr cm::ClientId kAlice{1}, kBob{2}, kCarol{3};
constexpr uint16_t kPort = 7471;

class CmServerTest : public testing::Test, public CmServer::Clients {
 public:
  bool is_others_qpn(cm::ClientId client, wire::Qpn qpn) override { return qpn.value() >> 8 == 9 && client != kAlice; }
  bool is_root(cm::ClientId client) override { return client == kAlice; }
  cm::Account account_of(cm::ClientId client) override { return accounts[client]; }
  bool has_time_for(const cm::Account& account) override {
    return !steps_left || account.user != of_steps || *steps_left > 0;
  }
  Duration spent() const override { return thread_time(); }
  void charge(const cm::Account& account, Duration since) override {
    charged[account.user] += spent() - since;
    if (steps_left && account.user == of_steps) --*steps_left;
  }
  void close_later(ClientSocket socket, const cm::Account&) override { socket.hang_up(); }

  cm::UserId of_steps{2};
  std::optional<int> steps_left;  // for which that user has time
  std::map<cm::UserId, Duration> charged;

  void start(const std::optional<io::FaultSpec>& faults = {}, size_t most_unread = CmServer::kMostUnread) {
    auto view = std::make_unique<FakeView>();
    view_ = view.get();
    server_ = std::make_unique<CmServer>(std::move(view), faults, limits, *this, most_unread, [this] {
      ++ports_read;
      return net::LocalPorts{40000, 40999};
    });
  }
  void turn() {
    waits_.clear();
    server_->add_waits(waits_);
    ASSERT_GE(poll(waits_.data(), waits_.size(), 0), 0);
    server_->work(waits_, now);
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  // In the order of time.
  void run_for(Duration time) {
    const Time end = now + time;
    turns(20);
    while (server_->deadline() <= end) {
      now = std::max(now, server_->deadline());
      turns(5);
    }
    now = end;
    turns(5);
  }
  CmServer& server() { return *server_; }
  size_t ids() const { return server_->service().manager().size(); }
  std::string state_of(cm::Id id) const {
    std::string state;
    server_->service().manager().list([&](const cm::Listing& listing) {
      if (listing.id == id && !listing.abandoned) state = listing.state;
    });
    return state;
  }

  Time now{1h};
  cm::Limits limits;
  int ports_read = 0;
  std::map<cm::ClientId, cm::Account> accounts;
  FakeView* view_ = nullptr;

 private:
  void SetUp() override { start(); }
  std::unique_ptr<CmServer> server_;
  std::vector<pollfd> waits_;
};

// A client's end, without thread.
class End {
 public:
  End(CmServerTest& test, cm::ClientId id) : test_(test), id_(id), socket_(test.server().open(id, test.now)) {}

  void say(std::span<const uint8_t> bytes, std::span<const int> descriptors = {}) const {
    EXPECT_EQ(send_message(socket_.get(), bytes, descriptors), 0);
  }
  void say(const cm::Request& request) const { say(cm::encode(request).bytes()); }
  cm::Reply ask(const cm::Request& request) {
    say(request);
    for (int turns = 0; turns < 100 && replies_.empty(); ++turns) {
      test_.turn();
      listen();
    }
    if (replies_.empty()) {
      ADD_FAILURE() << "no answer to request " << request.index();
      return {.error = ETIMEDOUT};
    }
    const cm::Reply reply = replies_.front();
    replies_.pop_front();
    return reply;
  }
  // Takes what has come.
  void listen() {
    std::array<uint8_t, 600> bytes;
    ssize_t size;
    while ((size = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
      const auto answer = cm::decode_answer(std::span(bytes).first(static_cast<size_t>(size)));
      ASSERT_TRUE(answer.has_value());
      if (const auto* const reply = std::get_if<cm::Reply>(&*answer)) replies_.push_back(*reply);
      if (const auto* const event = std::get_if<cm::Event>(&*answer)) events_.push_back(*event);
    }
    lost_ = lost_ || size == 0 || errno != EAGAIN;
  }
  cm::Event expect(cm::EventKind kind) {
    test_.turns(20);
    listen();
    if (events_.empty()) {
      ADD_FAILURE() << "no event, where one of kind " << static_cast<int>(kind) << " should be";
      return {};
    }
    const cm::Event event = events_.front();
    events_.pop_front();
    EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind));
    return event;
  }
  bool lost() {
    test_.turns(5);
    listen();
    return lost_;
  }
  void die() {
    socket_.reset();
    test_.server().close(id_, test_.now);  // as the broker sees the end of the connection at the same time
  }

  const std::deque<cm::Reply>& replies() const { return replies_; }

  cm::Id listen_at(uint16_t port, uint32_t backlog = 1024) {
    const cm::Reply bound = ask(cm::BindRequest{{.port = port}});
    EXPECT_EQ(bound.error, 0);
    const cm::Reply listening = ask(cm::ListenRequest{
        bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, port), .backlog = backlog}});
    EXPECT_EQ(listening.error, 0);
    return listening.id;
  }
  static cm::Connect connection(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote,
                                uint32_t qpn = 7, uint16_t port = kPort) {
    return {.service = wire::service_id(wire::PortSpace::kTcp, port),
            .names = wire::CmaHeader{.v4 = local.is_v4(), .source_port = 1, .source = local, .destination = remote},
            .path = {.netdev = netdev, .local = local, .remote = remote},
            .parameters = {.qpn = wire::Qpn(qpn)}};
  }
  cm::Id connect(uint32_t qpn = 7, uint16_t port = kPort) {
    return ask(cm::ConnectRequest{connection(kEth1, fake_v4(0, 1), fake_v4(1, 1), qpn, port)}).id;
  }
  cm::Reply accept(cm::Id id, uint32_t qpn = 8) {
    return ask(cm::AcceptRequest{id, {.parameters = {.qpn = wire::Qpn(qpn)}}});
  }
  std::deque<cm::Event>& events() { return events_; }
  std::deque<cm::Reply>& replies() { return replies_; }
  int fd() const { return socket_.get(); }

 private:
  CmServerTest& test_;
  const cm::ClientId id_;
  UniqueFd socket_;
  std::deque<cm::Reply> replies_;
  std::deque<cm::Event> events_;
  bool lost_ = false;
};

struct Connected {
  cm::Id active, passive;
};
Connected establish(End& from, End& to, uint32_t qpn = 7) {
  const cm::Id active = from.connect(qpn);
  const cm::Id passive = to.expect(cm::EventKind::kConnectRequest).id;
  EXPECT_EQ(to.accept(passive, qpn + 0x1000).error, 0);
  EXPECT_EQ(from.expect(cm::EventKind::kConnectResponse).id, active);
  EXPECT_EQ(from.ask(cm::ConfirmRequest{active, {}}).error, 0);
  EXPECT_EQ(to.expect(cm::EventKind::kEstablished).id, passive);
  return {active, passive};
}

// --- two clients of one broker ---------------------------------------------------------------------------------------

using CmOneHost = CmServerTest;

TEST_F(CmOneHost, ClientsConnectToEachOther) {
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  struct {
    uint32_t netdev;
    wire::IpAddress local, remote;
    uint32_t arrives_at;
  } const kWays[] = {{kEth1, fake_v4(0, 1), fake_v4(1, 1), kEth2},  // from one netdev to the other one's address
                     {kEth2, fake_v4(1, 1), fake_v4(0, 1), kEth1},
                     {kEth1, fake_v4(0, 1), fake_v4(0, 1), kEth1},
                     {kEth1, fake_v6(1), fake_v6(1), kEth1},
                     {kEth1, fake_link_local(1), fake_link_local(1), kEth1}};
  ASSERT_EQ(bob.ask(cm::BindRequest{{.v4 = false, .v6_only = true, .port = kPort}}).error, 0);
  const cm::Reply v6 = bob.ask(cm::BindRequest{{.v4 = false, .v6_only = true, .port = kPort + 1}});
  ASSERT_EQ(
      bob.ask(cm::ListenRequest{v6.binding, {.service = wire::service_id(wire::PortSpace::kTcp, kPort + 1)}}).error, 0);
  uint32_t qpn = 16;
  for (const auto& way : kWays) {
    const uint16_t port = way.local.is_v4() ? kPort : kPort + 1;
    const cm::Connect connect = End::connection(way.netdev, way.local, way.remote, ++qpn, port);
    const cm::Id active = alice.ask(cm::ConnectRequest{connect}).id;
    const cm::Event request = bob.expect(cm::EventKind::kConnectRequest);
    EXPECT_EQ(request.qp.path.netdev, way.arrives_at);
    EXPECT_EQ(request.qp.path.local, way.remote);
    EXPECT_EQ(request.qp.path.remote, way.local);
    EXPECT_EQ(bob.accept(request.id, qpn + 100).error, 0);
    const cm::Event response = alice.expect(cm::EventKind::kConnectResponse);
    EXPECT_EQ(response.qp.remote_guid, request.qp.path.ca_guid) << "each netdev has its own";
    EXPECT_EQ(request.qp.remote_guid, response.qp.path.ca_guid);
    EXPECT_EQ(alice.ask(cm::ConfirmRequest{active, {}}).error, 0);
    bob.expect(cm::EventKind::kEstablished);
  }
  EXPECT_EQ(server().counters().get(GsiCounter::kDropNotSent), 0u) << "nothing has left";
}

TEST_F(CmOneHost, WhatOneHasIsNotAnothers) {
  End alice(*this, kAlice), bob(*this, kBob);
  const cm::Id listener = alice.listen_at(80);
  EXPECT_EQ(bob.ask(cm::BindRequest{{.port = 80}}).error, EACCES);
  EXPECT_EQ(bob.ask(cm::DestroyRequest{listener}).error, ENOENT);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 9), 0x900)}).error, EPERM);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(1, 1), fake_v4(0, 9))}).error, EADDRNOTAVAIL);
  EXPECT_EQ(bob.ask(cm::ConnectRequest{End::connection(kEth2, fake_v4(0, 1), fake_v4(0, 9))}).error, EADDRNOTAVAIL);
}

// The notification of the kernel may still wait in its socket.
TEST_F(CmOneHost, AnAddressCanBeUsedAsSoonAsItIsThere) {
  End alice(*this, kAlice);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.address = fake_v4(0, 2), .port = kPort}}).error, EADDRNOTAVAIL);
  auto netdevs = view_->netdevs();
  netdevs.front().addresses.push_back(fake_v4(0, 2));
  view_->change(netdevs);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.address = fake_v4(0, 2), .port = kPort}}).error, 0);
}

TEST_F(CmOneHost, AnswersComeInTheOrderOfRequests) {
  End alice(*this, kAlice);
  for (uint16_t i = 0; i < 200; ++i) alice.say(cm::BindRequest{{.port = static_cast<uint16_t>(2000 + i)}});
  turns(100);
  alice.listen();
  ASSERT_EQ(alice.replies().size(), 200u);
  for (uint16_t i = 0; i < 200; ++i) EXPECT_EQ(alice.replies()[i].port, 2000 + i);
}

TEST_F(CmOneHost, WithLossAllConnect) {
  start(io::FaultSpec{.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .seed = 3});
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  constexpr uint32_t kCount = 200;
  uint32_t responses = 0, established = 0, next_qpn = 0x1000;
  for (uint32_t i = 0; i < kCount; ++i) alice.connect(16 + i);
  // A copy of a REP that comes before confirm() is answered by an MRA, after which the REP waits 67 s, each time.
  for (int steps = 0; steps < 2000 && (responses < kCount || established < kCount); ++steps) {
    run_for(1s);
    alice.listen();
    bob.listen();
    for (const cm::Event& event : std::exchange(bob.events(), {})) {
      established += event.kind == cm::EventKind::kEstablished ? 1 : 0;
      if (event.kind == cm::EventKind::kConnectRequest) {
        EXPECT_EQ(bob.accept(event.id, next_qpn++).error, 0);
      }
    }
    for (const cm::Event& event : std::exchange(alice.events(), {})) {
      EXPECT_EQ(event.kind, cm::EventKind::kConnectResponse);
      EXPECT_EQ(alice.ask(cm::ConfirmRequest{event.id, {}}).error, 0);
      ++responses;
    }
  }
  EXPECT_EQ(responses, kCount);
  EXPECT_EQ(established, kCount);
  for (const GsiCounter counter :
       {GsiCounter::kFaultDropped, GsiCounter::kFaultDuplicated, GsiCounter::kFaultDelayed}) {
    EXPECT_GT(server().counters().get(counter), 20u) << GsiCounters::text(counter);
  }
}

// --- the end of a client ---------------------------------------------------------------------------------------------

struct Death {
  const char* name;
  // Brings Alice, who will die, and Bob to where she dies; Carol listens elsewhere.
  std::function<void(End& alice, End& bob)> until;
  std::vector<cm::EventKind> bob_sees;
};

class CmDeath : public CmServerTest, public testing::WithParamInterface<Death> {};

TEST_P(CmDeath, EndsItsIdsAndNothingElse) {
  End alice(*this, kAlice), bob(*this, kBob), carol(*this, kCarol), dave(*this, cm::ClientId{4});
  ASSERT_EQ(carol.ask(cm::BindRequest{{.port = kPort + 9}}).error, 0);
  const cm::Id others = dave.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 77), 99)}).id;
  GetParam().until(alice, bob);
  bob.listen();
  bob.events().clear();
  alice.die();
  bob.expect(GetParam().bob_sees.empty() ? cm::EventKind::kRejected : GetParam().bob_sees.front());
  EXPECT_EQ(state_of(others), "REQ_SENT") << "somebody else's connection";
  End next(*this, kAlice);
  const cm::Reply bound = next.ask(cm::BindRequest{{.port = kPort}});
  EXPECT_TRUE(bound.error == 0 || bound.error == EADDRNOTAVAIL);
  EXPECT_EQ(next.ask(cm::BindRequest{{.port = kPort + 1}}).error, 0) << "her port is free at once";
  bob.die();
  carol.die();
  dave.die();
  next.die();
  run_for(5min);
  EXPECT_EQ(ids(), 0u) << "nothing is left";
  EXPECT_EQ(server().service().ports().size(), 0u);
}

std::vector<Death> deaths() {
  using cm::EventKind;
  const auto alice_listens = [](End& alice, End& bob) {
    alice.listen_at(kPort + 1);
    return bob.connect(7, kPort + 1);
  };
  return {
      {"ListenerWithARequestUntaken", [=](End& alice, End& bob) { alice_listens(alice, bob); }, {EventKind::kRejected}},
      {"RequestTaken",
       [=](End& alice, End& bob) {
         alice_listens(alice, bob);
         alice.ask(cm::TakeRequest{alice.expect(EventKind::kConnectRequest).id});
       },
       {EventKind::kRejected}},
      {"ReplySent",
       [=](End& alice, End& bob) {
         alice_listens(alice, bob);
         alice.accept(alice.expect(EventKind::kConnectRequest).id);
         bob.expect(EventKind::kConnectResponse);
       },
       {EventKind::kRejected}},
      {"Established",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         establish(alice, bob);
       },
       {EventKind::kDisconnected}},
      {"ReplyReceived",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         alice.connect();
         bob.accept(bob.expect(EventKind::kConnectRequest).id);
         alice.expect(EventKind::kConnectResponse);
       },
       {EventKind::kRejected}},
      {"RequestSent",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         alice.connect();
         bob.expect(EventKind::kConnectRequest);
       },
       {EventKind::kRejected}},
      {"AskedToDisconnect",
       [=](End& alice, End& bob) {
         alice.listen_at(kPort + 1);
         bob.listen_at(kPort);
         const Connected ids = establish(alice, bob);
         bob.ask(cm::DisconnectRequest{ids.passive, {}});
         alice.expect(EventKind::kDisconnected);
       },
       {EventKind::kDisconnected}},
  };
}

INSTANTIATE_TEST_SUITE_P(Each, CmDeath, testing::ValuesIn(deaths()),
                         [](const testing::TestParamInfo<Death>& death) { return std::string(death.param.name); });

TEST_F(CmServerTest, ASecondConnectionOfAClientEndsTheFirst) {
  End first(*this, kAlice);
  first.listen_at(kPort);
  End second(*this, kAlice);
  EXPECT_TRUE(first.lost());
  EXPECT_EQ(ids(), 0u);
  EXPECT_EQ(second.ask(cm::BindRequest{{.port = kPort}}).error, 0);
}

// --- hostile clients -------------------------------------------------------------------------------------------------

class CmHostile : public CmServerTest {
 protected:
  // Whoever says this loses the connection and its ids; a bystander has all that it had.
  void expect_lost(const std::function<void(End&)>& say) {
    End mallory(*this, kBob), alice(*this, kAlice);
    mallory.listen_at(kPort);
    const cm::Id others = alice.listen_at(kPort + 1);
    say(mallory);
    EXPECT_TRUE(mallory.lost());
    EXPECT_EQ(ids(), 1u);
    EXPECT_EQ(state_of(others), "LISTEN");
    EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0);
    server().close(kAlice, now);
  }
};

TEST_F(CmHostile, WhatIsNoRequestEndsTheConnection) {
  expect_lost([](End& end) { end.say(std::array<uint8_t, 5>{0xff, 1, 2, 3, 4}); });
  expect_lost([](End& end) { end.say(std::span<const uint8_t>()); });
  expect_lost([](End& end) { end.say(std::vector<uint8_t>(cm::Encoded::kMost + 1)); });
  expect_lost([](End& end) { end.say(std::vector<uint8_t>(100'000)); });
  expect_lost([](End& end) { end.say(cm::encode(cm::Reply{}).bytes()); });
}

TEST_F(CmHostile, DescriptorsThatNobodyAskedForEndTheConnection) {
  const UniqueFd any(eventfd(0, EFD_CLOEXEC));
  expect_lost([&](End& end) {
    end.say(cm::encode(cm::Request(cm::BindRequest{{.port = 9000}})).bytes(), std::array{any.get()});
  });
}

TEST_F(CmHostile, WhoDoesNotReadIsNotListenedTo) {
  End mallory(*this, kBob), alice(*this, kAlice);
  size_t said = 0;
  const cm::Encoded request = cm::encode(cm::Request(cm::BindRequest{{.port = 0}}));
  for (int rounds = 0; rounds < 3000; ++rounds) {
    while (send_message(mallory.fd(), request.bytes()) == 0) ++said;
    turn();
  }
  const size_t bindings = server().service().ports().size();
  EXPECT_LT(bindings, 5000u) << "as many as there is room for answers";
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0) << "others are served";
  for (int rounds = 0; rounds < 10'000 && mallory.replies().size() < said; ++rounds) {
    turn();
    mallory.listen();
  }
  EXPECT_EQ(mallory.replies().size(), said) << "nothing is lost for who reads later";
}

TEST_F(CmHostile, WhoLeavesTooManyEventsLosesTheConnection) {
  start({}, 512);
  End mallory(*this, kBob), alice(*this, kAlice);
  const cm::Id listener = mallory.listen_at(kPort, 100'000);
  uint32_t asked = 0;
  for (; asked < 5000 && !state_of(listener).empty(); ++asked) alice.connect(16 + asked);
  EXPECT_GT(asked, 512u);
  EXPECT_LT(asked, 5000u);
  for (int i = 0; i < 20; ++i) {  // Alice reads
    turn();
    alice.listen();
  }
  mallory.listen();
  EXPECT_TRUE(mallory.lost());
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort}}).error, 0);
  EXPECT_EQ(alice.expect(cm::EventKind::kRejected).status, static_cast<int>(wire::RejReason::kConsumer));
}

// The range for port 0 is the kernel's to say, but it is not asked with each request.
TEST_F(CmHostile, PortsWithoutEndReadTheRangeOnceASecond) {
  End mallory(*this, kBob);
  for (int i = 0; i < 100; ++i) {
    const uint16_t port = mallory.ask(cm::BindRequest{{.port = 0}}).port;
    EXPECT_TRUE(port >= 40000 && port <= 40999) << port;
  }
  EXPECT_EQ(ports_read, 1);
  now += CmServer::kPortsStay;
  mallory.ask(cm::BindRequest{{.port = 0}});
  EXPECT_EQ(ports_read, 2);
}

// However much one leaves, a turn ends no more of it than it may, and others are served in it.
TEST_F(CmHostile, WhoLeavesMuchHoldsUpNobody) {
  End mallory(*this, kBob), alice(*this, kAlice);
  const auto in_a_turn = limits.ended_in_a_turn;
  const size_t all = 10 * in_a_turn;
  for (size_t i = 0; i < all; ++i) {
    mallory.say(cm::ListenRequest{cm::kNoBinding, {.service = wire::ServiceId{1ULL << 60 | i}, .ip = false}});
    if (i % 16 == 15) turn(), mallory.listen();
  }
  turns(5);
  ASSERT_EQ(ids(), all);
  mallory.die();
  EXPECT_EQ(ids(), all - in_a_turn);
  End next(*this, kBob);
  next.say(cm::BindRequest{{.port = kPort}});
  alice.say(cm::BindRequest{{.port = kPort + 1}});
  size_t turns_of_all = 0;
  for (size_t before = ids(); before > 0; before = ids(), ++turns_of_all) {
    EXPECT_LE(server().deadline(), now) << "there is more to do";
    turn();
    EXPECT_LE(before - ids(), in_a_turn);
    next.listen();
    alice.listen();
    EXPECT_EQ(next.replies().size(), 1u);
    EXPECT_EQ(alice.replies().size(), 1u) << "in the first turn";
  }
  EXPECT_EQ(turns_of_all, 9u);
  EXPECT_GT(server().deadline(), now);
  EXPECT_TRUE(next.events().empty());
}

// The broker may have nobody left to serve, and end (--linger): the other sides are told nevertheless.
TEST_F(CmHostile, WhatIsLeftOfClientsIsEndedBeforeTheBrokerEnds) {
  limits.ended_in_a_turn = 2;
  start();
  End alice(*this, kAlice);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(alice.ask(cm::ConnectRequest{End::connection(kEth1, fake_v4(0, 1), fake_v4(0, 77), 16 + i)}).error, 0);
  }
  const auto sent = [&] { return server().counters().get(GsiCounter::kDropNotSent); };  // there is no socket
  const uint64_t before = sent();
  alice.die();
  EXPECT_EQ(sent() - before, 2u);
  server().end_rest();
  EXPECT_EQ(sent() - before, 20u);
}

TEST_F(CmHostile, ClientsOfOneUserShareWhatAUserMayHave) {
  limits.ids = 64;
  const cm::ClientId dave{4};
  accounts = {{kAlice, {cm::UserId{1000}, false}},
              {kBob, {cm::UserId{1000}, false}},
              {kCarol, {cm::UserId{1001}, false}},
              {dave, {cm::UserId{0}, true}}};
  start();
  End first(*this, kAlice), second(*this, kBob), other(*this, kCarol), root(*this, dave);
  uint64_t service = 1ULL << 60;
  const auto most = [&](End& end) {
    for (size_t i = 0;; ++i) {
      const int error = end.ask(cm::ListenRequest{cm::kNoBinding, {.service = wire::ServiceId{++service}}}).error;
      if (error == 0) continue;
      EXPECT_EQ(error, ENFILE);
      return i;
    }
  };
  EXPECT_EQ(most(first), 31u);
  EXPECT_EQ(most(second), 0u);
  EXPECT_EQ(most(other), 16u);
  EXPECT_EQ(most(root), 17u);
}

// One who asks without end has no more than his share of a turn.
TEST_F(CmHostile, WhoseUserHasNoTimeIsListenedToLater) {
  accounts[kAlice] = {cm::UserId{1}, true};
  accounts[kBob] = {cm::UserId{2}, false};
  End alice(*this, kAlice), bob(*this, kBob);
  steps_left = 0;
  bob.say(cm::BindRequest{{.port = kPort}});
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kPort + 1}}).error, 0);
  turns(20);
  bob.listen();
  EXPECT_TRUE(bob.replies().empty());
  EXPECT_EQ(charged[cm::UserId{2}], Duration{});
  steps_left.reset();
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.replies().size(), 1u);
  EXPECT_GT(charged[cm::UserId{2}], Duration{});
}

// To read a message, and to send one, takes as long as there are waiters at his end.
TEST_F(CmHostile, EachMessageIsOnTheAccountOfWhoGetsIt) {
  accounts[kAlice] = {cm::UserId{1}, true};
  accounts[kBob] = {cm::UserId{2}, false};
  End alice(*this, kAlice), bob(*this, kBob);
  bob.listen_at(kPort);
  steps_left = 0;
  for (uint32_t i = 0; i < 10; ++i) alice.connect(16 + i);
  bob.listen();
  EXPECT_TRUE(bob.events().empty());
  steps_left = 3;
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.events().size(), 3u);
  EXPECT_EQ(steps_left, 0);
  steps_left.reset();
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.events().size(), 10u);
  for (int i = 0; i < 10; ++i) bob.say(cm::TakeRequest{cm::Id{1}});
  steps_left = 4;
  turns(5);
  bob.listen();
  EXPECT_EQ(bob.replies().size(), 2u) << "a request and its answer are two steps";
}

TEST_F(CmHostile, AFloodIsATurnsWork) {
  End mallory(*this, kBob), alice(*this, kAlice);
  for (int rounds = 0; rounds < 20; ++rounds) {
    while (send_message(mallory.fd(), cm::encode(cm::Request(cm::TakeRequest{cm::Id{1}})).bytes()) == 0) continue;
    alice.say(cm::TakeRequest{cm::Id{1}});
    turn();
    alice.listen();
    EXPECT_EQ(alice.replies().size(), static_cast<size_t>(rounds + 1)) << "in the same turn";
    mallory.listen();
    EXPECT_LE(mallory.replies().size(), CmServer::kRequestsInATurn * static_cast<size_t>(rounds + 1));
  }
}

}  // namespace
}  // namespace uroce::broker

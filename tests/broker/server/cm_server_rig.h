// SPDX-License-Identifier: BSD-2-Clause
// The broker's connection manager for tests: one host, two netdevs, time that passes as the tests say, and the ends of
// its clients.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/message_socket.h"
#include "broker/server/cm_server.h"
#include "tests/broker/server/fake_view.h"

namespace uroce::broker {

inline constexpr cm::ClientId kAlice{1}, kBob{2}, kCarol{3};
inline constexpr uint16_t kPort = 7471;

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

  Time now{std::chrono::hours(1)};
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
inline Connected establish(End& from, End& to, uint32_t qpn = 7) {
  const cm::Id active = from.connect(qpn);
  const cm::Id passive = to.expect(cm::EventKind::kConnectRequest).id;
  EXPECT_EQ(to.accept(passive, qpn + 0x1000).error, 0);
  EXPECT_EQ(from.expect(cm::EventKind::kConnectResponse).id, active);
  EXPECT_EQ(from.ask(cm::ConfirmRequest{active, {}}).error, 0);
  EXPECT_EQ(to.expect(cm::EventKind::kEstablished).id, passive);
  return {active, passive};
}

}  // namespace uroce::broker

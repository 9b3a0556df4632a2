// SPDX-License-Identifier: BSD-2-Clause
// The client's side of the broker's connection manager: requests of several threads, events, and the end of a broker.
#include "broker/client/broker_agent.h"

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/fake_view.h"

namespace uroce::broker {
namespace {

constexpr uint16_t kCmPort = 7471;

// A process that uses the connection manager; here there may be several in one.
class CmProcess {
 public:
  explicit CmProcess(const std::string& address) {
    auto linked = Link::open(address, nullptr);
    EXPECT_TRUE(std::holds_alternative<std::shared_ptr<Link>>(linked));
    auto opened = BrokerAgent::open(std::get<std::shared_ptr<Link>>(linked),
                                    {.on_event = [this](const cm::Event& event) { note("event", event); },
                                     .on_loss = [this] { note("loss", {}); },
                                     .on_return = [this] { note("return", {}); }});
    if (const auto* const error = std::get_if<io::IoError>(&opened)) {
      error_ = error->code;
    } else {
      agent_ = std::move(std::get<std::unique_ptr<cm::Agent>>(opened));
    }
  }

  cm::Reply ask(const cm::Request& request) { return agent_->ask(request); }
  // The next thing that the agent says, which is of this kind.
  cm::Event expect(const std::string& what) {
    std::unique_lock guard(lock_);
    if (!changed_.wait_for(guard, std::chrono::seconds(20), [this] { return !said_.empty(); })) {
      ADD_FAILURE() << "nothing, where " << what << " should be";
      return {};
    }
    const auto [kind, event] = said_.front();
    said_.pop_front();
    EXPECT_EQ(kind, what);
    return event;
  }
  cm::Event expect(cm::EventKind kind) {
    const cm::Event event = expect("event");
    EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind));
    return event;
  }
  int error() const { return error_; }
  void leave() { agent_.reset(); }

  void listen() {
    const cm::Reply bound = ask(cm::BindRequest{{.port = kCmPort}});
    EXPECT_EQ(bound.error, 0);
    EXPECT_EQ(
        ask(cm::ListenRequest{bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, kCmPort)}}).error, 0);
  }
  cm::Id connect() {
    return ask(cm::ConnectRequest{{.service = wire::service_id(wire::PortSpace::kTcp, kCmPort),
                                   .names = wire::CmaHeader{.source = fake_v4(0, 1), .destination = fake_v4(1, 1)},
                                   .path = {.netdev = kEth1, .local = fake_v4(0, 1), .remote = fake_v4(1, 1)},
                                   .parameters = {.qpn = wire::Qpn(5)}}})
        .id;
  }

 private:
  void note(const std::string& kind, const cm::Event& event) {
    const std::lock_guard guard(lock_);
    said_.emplace_back(kind, event);
    changed_.notify_all();
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, cm::Event>> said_;
  int error_ = 0;
  std::unique_ptr<cm::Agent> agent_;  // ends first: its thread uses the others
};

class CmLinkTest : public testing::Test {
 protected:
  CmLinkTest() { kernel_.has_cm = true; }
  Kernel kernel_;
  const std::string address_ = unique_address();
};

TEST_F(CmLinkTest, TwoProcessesConnect) {
  const RunningBroker broker(kernel_, address_);
  CmProcess alice(address_), bob(address_);
  bob.listen();
  const cm::Id active = alice.connect();
  const cm::Id passive = bob.expect(cm::EventKind::kConnectRequest).id;
  EXPECT_EQ(bob.ask(cm::AcceptRequest{passive, {.parameters = {.qpn = wire::Qpn(6)}}}).error, 0);
  EXPECT_EQ(alice.expect(cm::EventKind::kConnectResponse).qp.dest_qpn, wire::Qpn(6));
  EXPECT_EQ(alice.ask(cm::ConfirmRequest{active, {}}).error, 0);
  bob.expect(cm::EventKind::kEstablished);
  alice.leave();
  bob.expect(cm::EventKind::kDisconnected);
}

TEST_F(CmLinkTest, ABrokerWithoutConnectionManagerSaysSo) {
  kernel_.has_cm = false;
  const RunningBroker broker(kernel_, address_);
  EXPECT_EQ(CmProcess(address_).error(), EOPNOTSUPP);
}

TEST_F(CmLinkTest, WhatCannotBeSaidIsAnErrorOfTheRequest) {
  const RunningBroker broker(kernel_, address_);
  CmProcess alice(address_);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.space = wire::PortSpace{5}}}).error, EINVAL);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kCmPort}}).error, 0) << "and nobody has lost a connection";
}

TEST_F(CmLinkTest, ManyThreadsAskAtOnce) {
  const RunningBroker broker(kernel_, address_);
  CmProcess alice(address_);
  std::vector<std::thread> threads;
  for (uint16_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&alice, thread] {
      for (uint16_t i = 0; i < 50; ++i) {
        const auto port = static_cast<uint16_t>(2000 + thread * 100 + i);
        EXPECT_EQ(alice.ask(cm::BindRequest{{.port = port}}).port, port) << "each has its own answer";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CmLinkTest, TheNextBrokerAdoptsConnections) {
  auto first = std::make_unique<RunningBroker>(kernel_, address_);
  CmProcess alice(address_), bob(address_);
  bob.listen();
  const cm::Id active = alice.connect();
  const cm::Event request = bob.expect(cm::EventKind::kConnectRequest);
  bob.ask(cm::AcceptRequest{request.id, {.parameters = {.qpn = wire::Qpn(6)}}});
  const cm::Event response = alice.expect(cm::EventKind::kConnectResponse);
  alice.ask(cm::ConfirmRequest{active, {}});
  bob.expect(cm::EventKind::kEstablished);
  first.reset();
  for (CmProcess* const process : {&alice, &bob}) process->expect("loss");
  EXPECT_EQ(alice.ask(cm::TakeRequest{active}).error, ENOTCONN);
  const RunningBroker second(kernel_, address_);
  for (CmProcess* const process : {&alice, &bob}) process->expect("return");
  EXPECT_EQ(alice.ask(cm::TakeRequest{active}).error, ENOENT) << "it knows nothing";
  EXPECT_EQ(
      alice.ask(cm::Adopt{.id = active, .remote_id = request.id, .local_qpn = wire::Qpn(5), .qp = response.qp}).error,
      0);
  EXPECT_EQ(
      bob.ask(cm::Adopt{.id = request.id, .remote_id = active, .local_qpn = wire::Qpn(6), .qp = request.qp}).error, 0);
  bob.listen();
  EXPECT_EQ(alice.ask(cm::DisconnectRequest{active, {}}).error, 0);
  EXPECT_EQ(bob.expect(cm::EventKind::kDisconnected).id, request.id);
  EXPECT_EQ(bob.ask(cm::DisconnectRequest{request.id, {}}).error, 0);
  EXPECT_EQ(alice.expect(cm::EventKind::kDisconnected).id, active);
}

TEST_F(CmLinkTest, AChildHasNothingOfIt) {
  const RunningBroker broker(kernel_, address_);
  CmProcess alice(address_);
  const pid_t child = fork();
  if (child == 0) {
    const bool fails = alice.ask(cm::BindRequest{{.port = kCmPort}}).error == ENOTCONN;
    alice.leave();
    _exit(fails ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(alice.ask(cm::BindRequest{{.port = kCmPort}}).error, 0) << "the parent goes on";
}

}  // namespace
}  // namespace uroce::broker

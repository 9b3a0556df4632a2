// SPDX-License-Identifier: BSD-2-Clause
// The connection manager of a process alone, over an engine without a network: the process connects to itself.
#include "cm/local/local_agent.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>

#include "tests/engine/device/engine_rig.h"

namespace uroce::rdma_cm {
namespace {

using engine::test::eventually;
using engine::test::kOwnAddress;

constexpr uint32_t kNetdev = 1;
constexpr wire::Guid kGuid{0x1234};
constexpr uint16_t kPort = 7471;

class LocalAgentTest : public testing::Test, public cm::Surroundings {
 public:
  bool has_address(uint32_t netdev, const wire::IpAddress& address) override {
    return (netdev == 0 || netdev == kNetdev) && address == kOwnAddress;
  }
  bool reaches(uint32_t netdev, const wire::IpAddress&, const wire::IpAddress&) override { return netdev == kNetdev; }
  wire::Guid guid(uint32_t netdev) override { return netdev == kNetdev ? kGuid : wire::Guid{}; }
  bool is_others_qpn(cm::ClientId, wire::Qpn) override { return false; }
  bool is_privileged(cm::ClientId) override { return false; }
  cm::PortRange port_range() override { return {40000, 50000}; }

 protected:
  std::vector<LocalAgent::Device> devices() {
    const std::lock_guard guard(lock);
    return there;
  }
  void SetUp() override {
    cm::Agent::Handler handler;
    handler.on_event = [this](const cm::Event& event) {
      const std::lock_guard guard(lock);
      events.push_back(event);
    };
    agent.emplace(
        *this, [this] { return devices(); }, std::move(handler));
  }
  cm::Reply listen(uint16_t port = kPort) {
    const cm::Reply bound = agent->ask(cm::BindRequest{{.port = port}});
    EXPECT_EQ(bound.error, 0);
    return agent->ask(cm::ListenRequest{bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, port)}});
  }
  cm::Reply connect(uint32_t qpn = 5, uint16_t port = kPort) {
    return agent->ask(cm::ConnectRequest{
        {.service = wire::service_id(wire::PortSpace::kTcp, port),
         .names = wire::CmaHeader{.source_port = 1, .source = kOwnAddress, .destination = kOwnAddress},
         .path = {.netdev = kNetdev, .local = kOwnAddress, .remote = kOwnAddress},
         .parameters = {.qpn = wire::Qpn(qpn), .responder_resources = 3, .initiator_depth = 4}}});
  }
  // The next event of this kind; those before it are forgotten.
  std::optional<cm::Event> wait(cm::EventKind kind) {
    std::optional<cm::Event> found;
    const bool came = eventually([&] {
      const std::lock_guard guard(lock);
      while (!events.empty() && !found) {
        if (events.front().kind == kind) found = events.front();
        events.pop_front();
      }
      return found.has_value();
    });
    EXPECT_TRUE(came);
    return found;
  }
  size_t count(cm::EventKind kind) {
    const std::lock_guard guard(lock);
    return static_cast<size_t>(
        std::count_if(events.begin(), events.end(), [kind](const cm::Event& event) { return event.kind == kind; }));
  }

  std::mutex lock;
  std::shared_ptr<engine::Engine> engine = engine::test::make_engine(1);
  std::vector<LocalAgent::Device> there{{kNetdev, kGuid, engine}};
  std::deque<cm::Event> events;
  std::optional<LocalAgent> agent;
};

TEST_F(LocalAgentTest, ConnectsAndDisconnects) {
  ASSERT_EQ(listen().error, 0);
  const cm::Reply connecting = connect();
  ASSERT_EQ(connecting.error, 0);
  const auto request = wait(cm::EventKind::kConnectRequest);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->parameters.responder_resources, 4);
  ASSERT_EQ(agent->ask(cm::TakeRequest{request->id}).error, 0);
  ASSERT_EQ(agent->ask(cm::AcceptRequest{request->id, {.parameters = {.qpn = wire::Qpn(6)}}}).error, 0);
  const auto response = wait(cm::EventKind::kConnectResponse);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->id, connecting.id);
  EXPECT_EQ(response->qp.dest_qpn, wire::Qpn(6));
  ASSERT_EQ(agent->ask(cm::ConfirmRequest{connecting.id, {}}).error, 0);
  const auto established = wait(cm::EventKind::kEstablished);
  ASSERT_TRUE(established);
  EXPECT_EQ(established->id, request->id);
  ASSERT_EQ(agent->ask(cm::DisconnectRequest{connecting.id, {}}).error, 0);
  EXPECT_EQ(wait(cm::EventKind::kDisconnected)->id, request->id);
  ASSERT_EQ(agent->ask(cm::DisconnectRequest{request->id, {}}).error, 0);
  EXPECT_EQ(wait(cm::EventKind::kDisconnected)->id, connecting.id);
  // Timers: TIMEWAIT ends by itself.
  wait(cm::EventKind::kTimewaitExit);
  EXPECT_EQ(agent->ask(cm::DestroyRequest{connecting.id}).error, 0);
  EXPECT_EQ(agent->ask(cm::DestroyRequest{connecting.id}).error, ENOENT);
}

TEST_F(LocalAgentTest, NobodyListens) {
  ASSERT_EQ(connect().error, 0);
  const auto rejected = wait(cm::EventKind::kRejected);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->status, 8);
}

TEST_F(LocalAgentTest, ADeviceThatIsNotThere) {
  there.clear();
  EXPECT_EQ(connect().error, ENODEV);
  EXPECT_EQ(listen().error, ENODEV);
}

// Whoever listens everywhere listens also on what comes later.
TEST_F(LocalAgentTest, ADeviceThatComesLater) {
  there[0].netdev = 99;
  ASSERT_EQ(listen().error, 0);
  const auto later = engine::test::make_engine(1);
  {
    const std::lock_guard guard(lock);
    there.push_back({kNetdev, kGuid, later});
  }
  EXPECT_TRUE(eventually([&] {
    std::unique_ptr<GsiQp> other;
    return GsiQp::open(
               later, [] {}, other) == EBUSY;
  }));
  ASSERT_EQ(connect().error, 0);
  EXPECT_TRUE(wait(cm::EventKind::kConnectRequest));
}

// A broker has QP1, say.
TEST_F(LocalAgentTest, QP1OfSomebodyElse) {
  std::unique_ptr<GsiQp> other;
  ASSERT_EQ(GsiQp::open(
                engine, [] {}, other),
            0);
  EXPECT_EQ(connect().error, EBUSY);
}

// The other side of each is told when the process ends.
TEST_F(LocalAgentTest, EndsWithOpenConnections) {
  ASSERT_EQ(listen().error, 0);
  constexpr uint32_t kConnections = 400;
  for (uint32_t i = 0; i < kConnections; ++i) ASSERT_EQ(connect(10 + i).error, 0);
  ASSERT_TRUE(eventually([&] { return count(cm::EventKind::kConnectRequest) == kConnections; }));
  const uint64_t before = engine->counters().get(Counter::kTxRequests);
  agent.reset();
  EXPECT_EQ(engine->counters().get(Counter::kTxRequests) - before, 2 * kConnections);
}

// Several threads ask at the same time, and events come meanwhile.
TEST_F(LocalAgentTest, ManyAtOnce) {
  constexpr int kThreads = 4, kEach = 50;
  for (int t = 0; t < kThreads; ++t) ASSERT_EQ(listen(static_cast<uint16_t>(kPort + t)).error, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto qpn = static_cast<uint32_t>(1000 + t * kEach + i);
        EXPECT_EQ(connect(qpn, static_cast<uint16_t>(kPort + t)).error, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return count(cm::EventKind::kConnectRequest) == kThreads * kEach; }));
}

}  // namespace
}  // namespace uroce::rdma_cm

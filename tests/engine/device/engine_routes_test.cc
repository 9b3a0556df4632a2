// SPDX-License-Identifier: BSD-2-Clause
// How an engine follows routes: one look-up for all who send to the same address, only when it may have changed, and
// never while the data path has to wait for it.
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "engine/objects/path.h"
#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

wire::IpAddress v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return wire::IpAddress::v4(std::array<uint8_t, 4>{a, b, c, d}.data());
}

// A host whose routes lead everywhere, that counts questions and can be slow to answer.
class SlowNetView final : public FixedNetView {
 public:
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& to) override {
    std::unique_lock guard(lock_);
    ++routes_[to.bytes];
    changed_.notify_all();
    changed_.wait(guard, [this] { return answers_; });
    return net::Route{.next_hop = to, .mtu = mtu};
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override {
    ++neighbours;
    return {net::NeighbourState::kUsable, {}};
  }
  uint64_t generation() const override { return generation_; }

  void answer(bool answers) {
    std::lock_guard guard(lock_);
    answers_ = answers;
    changed_.notify_all();
  }
  void tell(const net::News& news) {
    ++generation_;
    tell_listeners(news);
  }
  // How often the route there has been asked for.
  int routes(const wire::IpAddress& to) {
    std::lock_guard guard(lock_);
    return routes_[to.bytes];
  }
  bool wait_for_routes(const wire::IpAddress& to, int count) {
    std::unique_lock guard(lock_);
    return changed_.wait_for(guard, std::chrono::seconds(60), [&] { return routes_[to.bytes] >= count; });
  }
  std::atomic<int> neighbours{0};
  std::atomic<uint32_t> mtu{0};  // of all routes; 0: they do not say

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::atomic<uint64_t> generation_{1};
  bool answers_ = true;
  std::map<std::array<uint8_t, 16>, int> routes_;
};

class EngineRoutesTest : public testing::Test {
 protected:
  EngineRoutesTest()
      : view(std::make_shared<SlowNetView>()),
        engine(
            std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open_nothing))) {
  }

  uint32_t handle(const wire::IpAddress& to) {
    transport::AddressVector address;
    address.destination = to;
    address.global = true;
    uint32_t number = 0;
    EXPECT_EQ(engine->create_address(address, number), 0);
    return number;
  }
  static net::News route(const wire::IpAddress& address, uint8_t length) {
    net::News news;
    news.add_route({address, length});
    return news;
  }

  const std::shared_ptr<SlowNetView> view;
  const std::shared_ptr<Engine> engine;
};

TEST_F(EngineRoutesTest, EqualDestinationsShareOneLookUp) {
  for (int i = 0; i < 100; ++i) handle(v4(203, 0, 113, 1));
  EXPECT_EQ(view->routes(v4(203, 0, 113, 1)), 1);
  EXPECT_EQ(view->neighbours, 1);
  handle(v4(203, 0, 113, 2));
  EXPECT_EQ(view->neighbours, 2);
}

// `ip route add ... mtu 1400` and the like.
TEST_F(EngineRoutesTest, ConnectionKeepsWithinItsRoutesMtu) {
  Connection connection(*engine);
  connection.move(*connection.a, transport::QpState::kReset);
  transport::QpAttributes attr;
  attr.state = transport::QpState::kInit;
  attr.port = 1;
  using namespace transport;
  ASSERT_EQ(engine->modify_qp(*connection.a, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
  attr.state = transport::QpState::kRtr;
  attr.address.destination = v4(203, 0, 113, 1);
  attr.address.global = true;
  const uint32_t mask =
      kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  view->mtu = 700;
  attr.path_mtu = 1024;
  EXPECT_EQ(engine->modify_qp(*connection.a, attr, mask), EINVAL) << "the netdev would allow it";
  attr.path_mtu = 512;
  EXPECT_EQ(engine->modify_qp(*connection.a, attr, mask), 0);
}

// Nobody answers, so all of them probe, and the budget that they share is too small for so many.
TEST_F(EngineRoutesTest, QpsToOneAddressShareItsProbes) {
  using namespace transport;
  CompletionQueue cq(4096, nullptr);
  std::vector<Qp*> qps(2000);
  for (Qp*& qp : qps) {
    QpInit init;
    init.pd = 1;
    init.max_inline = 8;
    init.send_cq = init.recv_cq = &cq;
    ASSERT_EQ(engine->create_qp(init, qp), 0);
    QpAttributes attr;
    attr.port = 1;
    attr.state = QpState::kInit;
    ASSERT_EQ(engine->modify_qp(*qp, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
    attr.state = QpState::kRtr;
    attr.address.destination = v4(203, 0, 113, 1);
    attr.address.global = true;
    attr.path_mtu = 1024;
    attr.timeout = 0;  // waits for ever
    ASSERT_EQ(engine->modify_qp(*qp, attr,
                                kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                                    kQpMinRnrTimer),
              0);
    attr.state = QpState::kRts;
    ASSERT_EQ(
        engine->modify_qp(*qp, attr, kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic),
        0);
  }
  for (Qp* const qp : qps) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(Engine::send_queue(*qp).reserve(0, slot));
    *slot.wqe = {};
    slot.wqe->opcode = queue::WrOpcode::kSend;
    Engine::send_queue(*qp).publish(1);
    engine->doorbell(*qp);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (engine->counters().get(Counter::kProbesPutOff) == 0 && std::chrono::steady_clock::now() < end) {
    engine->progress();
  }
  EXPECT_GT(engine->counters().get(Counter::kProbesPutOff), 0u);
  for (Qp* const qp : qps) engine->destroy_qp(qp);
}

TEST_F(EngineRoutesTest, OnlyRoutesThatMayMatterAreLookedUpAgain) {
  Connection connection(*engine);  // starts the thread, which looks at all routes once
  const wire::IpAddress near = v4(203, 0, 113, 1), far = v4(203, 0, 113, 2);
  handle(near);
  handle(far);
  for (int i = 0; i < 5; ++i) {
    const int before = view->routes(far);
    for (int j = 0; j < 20; ++j) view->tell(route(v4(10, static_cast<uint8_t>(j), 0, 0), 96 + 16));
    view->tell(route(far, 128));
    ASSERT_TRUE(view->wait_for_routes(far, before + 1));
  }
  EXPECT_LE(view->routes(near), 2) << "when it was made, and by the thread at its start";
}

TEST_F(EngineRoutesTest, ManyChangesCostFewLookUps) {
  Connection connection(*engine);
  handle(v4(203, 0, 113, 1));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000; ++i) view->tell(route(v4(203, 0, 113, 0), 96 + 24));
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_LE(view->routes(v4(203, 0, 113, 1)), 4 + time.count() / 50) << "one at the start, then one in 50 ms";
}

TEST_F(EngineRoutesTest, TrafficGoesOnWhileTheKernelIsAsked) {
  Connection connection(*engine);
  handle(v4(203, 0, 113, 1));
  const int before = view->routes(v4(203, 0, 113, 1));
  view->answer(false);
  view->tell(route(v4(203, 0, 113, 0), 96 + 24));
  ASSERT_TRUE(view->wait_for_routes(v4(203, 0, 113, 1), before + 1));
  // The kernel does not answer now. Sends complete, memory is registered, QPs are asked for their state.
  for (uint64_t i = 0; i < 100; ++i) {
    queue::ReceiveQueue& receives = Engine::receive_queue(*connection.b);
    Buffer buffer(*engine);
    const queue::Sge sge = buffer.sge(0);
    ASSERT_TRUE(receives.post(i, {&sge, 1}));
    ASSERT_TRUE(connection.send(*connection.a, i));
    WcStatus status{};
    while (connection.cq_a.poll(1, [&](const Cqe& cqe) { status = cqe.status; }) == 0) engine->progress();
    EXPECT_EQ(status, WcStatus::kSuccess);
    EXPECT_EQ(engine->query_qp(*connection.a).state, transport::QpState::kRts);
  }
  view->answer(true);
}

// Whoever waits for them is woken in the middle of sending (io/same_host/cost.h).
TEST(Route, GroupsAndOtherNetdevsOfThisHostAreDeliveredLocally) {
  class TwoNetdevs final : public FixedNetView {
   public:
    std::vector<net::Netdev> netdevs() override {
      net::Netdev other = *netdev(2);
      other.index = 2;
      other.addresses = {v4(198, 51, 100, 1)};
      return {*netdev(1), other};
    }
    std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& to) override {
      return net::Route{.next_hop = to};
    }
  } view;
  const auto is_local = [&](const wire::IpAddress& to) {
    Destination::Route route;
    EXPECT_EQ(look_up_route(view, *view.netdev(1), kOwnAddress, to, route), 0);
    return route.local_delivery;
  };
  EXPECT_TRUE(is_local(v4(224, 0, 2, 9)));
  EXPECT_TRUE(is_local(v4(198, 51, 100, 1)));
  EXPECT_FALSE(is_local(v4(198, 51, 100, 2)));
}

}  // namespace
}  // namespace uroce::engine::test

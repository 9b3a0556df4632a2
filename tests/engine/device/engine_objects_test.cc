// SPDX-License-Identifier: BSD-2-Clause
// Address handles, shared receive queues, multicast groups and QPs that end while their packets wait, through the
// engine's public face.
#include <atomic>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/lock_watch.h"
#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

using queue::WrOpcode;
using transport::QpAttributes;
using transport::QpState;
using transport::QpType;

const wire::IpAddress kPeer = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 2}.data());

wire::IpAddress group(uint32_t i) {
  return wire::IpAddress::v4(
      std::array<uint8_t, 4>{239, static_cast<uint8_t>(i >> 16), static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)}
          .data());
}

// FixedNetView, with every other address one hop away.
class RoutedNetView final : public FixedNetView {
 public:
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& to) override {
    return net::Route{.next_hop = to};
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override { return {net::NeighbourState::kUsable, {}}; }
};

// FixedNetView, above which VLANs come.
class StackedNetView final : public FixedNetView {
 public:
  std::optional<net::Netdev> netdev(int index) override {
    std::optional<net::Netdev> netdev = FixedNetView::netdev(index);
    for (int i = 0; i < vlans_; ++i) netdev->vlans.push_back("test0." + std::to_string(i));
    return netdev;
  }
  void add_vlan() {
    ++vlans_;
    net::News news;
    news.netdevs = true;
    tell_listeners(news);
  }

 private:
  std::atomic<int> vlans_{0};
};

// FixedNetView, with a second address from some moment on, of which nobody is told.
class GrowingNetView final : public FixedNetView {
 public:
  std::vector<net::Netdev> netdevs() override { return {*netdev(1)}; }
  std::optional<net::Netdev> netdev(int index) override {
    std::optional<net::Netdev> netdev = FixedNetView::netdev(index);
    if (grown) {
      netdev->addresses.push_back(kSecondAddress);
      netdev->gids = netdev->addresses;
    }
    return netdev;
  }
  void grow() {
    grown = true;
    net::News news;
    news.netdevs = true;
    tell_listeners(news);
  }

  static inline const wire::IpAddress kSecondAddress =
      wire::IpAddress::v4(std::array<uint8_t, 4>{198, 51, 100, 1}.data());
  std::atomic<bool> grown{false};
};

// A wire that takes packets only while it is open.
struct Valve {
  std::atomic<bool> open{true};
  std::atomic<uint32_t> passed{0};
  std::atomic<bool> kickable{true};           // otherwise kicks are put off
  std::atomic<uint32_t> kicks{0}, kicked{0};  // all, and those that were not put off
  std::atomic<uint32_t> slept_on{0};
};
class ValveIo final : public io::PacketIo {
 public:
  explicit ValveIo(Valve& valve) : valve_(valve) {}
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override {
    if (!valve_.open) return 0;
    valve_.passed += static_cast<uint32_t>(burst.size());
    return burst.size();
  }
  bool flush() override {
    ++valve_.kicks;
    if (!valve_.kickable) return false;
    ++valve_.kicked;
    return true;
  }
  std::span<const pollfd> wait_descriptors() const override {
    ++valve_.slept_on;
    return {};
  }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 1480; }
  std::string description() const override { return "valve"; }
  io::IoCounters counters() const override { return {}; }

 private:
  Valve& valve_;
};

std::shared_ptr<Engine> make_engine_behind(Valve& valve) {
  auto view = std::make_shared<RoutedNetView>();
  const net::Netdev netdev = *view->netdev(1);
  return std::make_shared<Engine>(std::make_unique<Device>(netdev, view, DeviceOptions{}, [&valve](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(std::make_unique<ValveIo>(valve));
    return std::variant<OpenedIo, io::IoError>(std::move(opened));
  }));
}

struct UdQp {
  explicit UdQp(Engine& e) : engine(e) {
    QpInit init;
    init.type = QpType::kUd;
    init.pd = 1;
    init.max_send_wr = init.max_recv_wr = 64;
    init.max_inline = 64;
    init.send_cq = init.recv_cq = &cq;
    EXPECT_EQ(engine.create_qp(init, qp), 0);
  }
  ~UdQp() { engine.destroy_qp(qp); }
  void to_rts() {
    using namespace transport;
    QpAttributes attr;
    attr.port = 1;
    attr.state = QpState::kInit;
    ASSERT_EQ(engine.modify_qp(*qp, attr, kQpState | kQpPkeyIndex | kQpPort | kQpQkey), 0);
    attr.state = QpState::kRtr;
    ASSERT_EQ(engine.modify_qp(*qp, attr, kQpState), 0);
    attr.state = QpState::kRts;
    ASSERT_EQ(engine.modify_qp(*qp, attr, kQpState | kQpSqPsn), 0);
  }
  void send(uint64_t wr_id, uint32_t handle, uint32_t remote_qpn = 77) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(Engine::send_queue(*qp).reserve(0, slot));
    *slot.wqe = {};
    slot.wqe->wr_id = wr_id;
    slot.wqe->opcode = WrOpcode::kSend;
    slot.wqe->flags = queue::kSignaled | queue::kInline;
    slot.wqe->length = 8;
    slot.wqe->ud = {.address_handle = handle, .remote_qpn = remote_qpn, .remote_qkey = 0};
    Engine::send_queue(*qp).publish(1);
    engine.doorbell(*qp);
  }
  // The next `count` completions.
  std::vector<Cqe> wait(size_t count) {
    std::vector<Cqe> cqes;
    while (cqes.size() < count) {
      if (cq.poll(64, [&](const Cqe& cqe) { cqes.push_back(cqe); }) == 0) engine.progress();
    }
    return cqes;
  }
  Engine& engine;
  CompletionQueue cq{1024, nullptr};
  Qp* qp = nullptr;
};

transport::AddressVector vector_to(const wire::IpAddress& to) {
  transport::AddressVector vector;
  vector.destination = to;
  return vector;
}

// --- address handles -------------------------------------------------------------------------------------------------

TEST(EngineAddress, NeedsNoQp) {
  auto engine = make_engine();
  uint32_t handle = 0;
  ASSERT_EQ(engine->create_address(vector_to(kOwnAddress), handle), 0);
  engine->destroy_address(handle);
  EXPECT_EQ(engine->create_address(vector_to(kPeer), handle), ENETUNREACH);
  transport::AddressVector unknown = vector_to(kOwnAddress);
  unknown.source_gid_index = 5;
  EXPECT_EQ(engine->create_address(unknown, handle), EINVAL);
  EXPECT_EQ(engine->create_address({}, handle), EINVAL);
}

// What can be named as a source can be sent to, before the background thread has looked at the network.
TEST(EngineAddress, OfAnAddressThatHasJustCome) {
  auto view = std::make_shared<GrowingNetView>();
  auto engine =
      std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open_nothing));
  UdQp ud(*engine);
  ud.to_rts();
  view->grown = true;
  transport::AddressVector vector = vector_to(GrowingNetView::kSecondAddress);
  vector.source_gid_index = 1;
  uint32_t handle = 0;
  ASSERT_EQ(engine->create_address(vector, handle), 0);
  // Without a receive request the datagram is dropped for that, and for nothing else.
  ud.send(1, handle, Engine::qpn(*ud.qp));
  ud.wait(1);
  // The background thread may be at the round that drops it.
  EXPECT_TRUE(eventually([&] {
    engine->progress();
    const CounterSums counters = engine->counters();
    return counters.get(Counter::kDropNoReceive) + counters.get(Counter::kDropWrongAddress) > 0;
  }));
  EXPECT_EQ(engine->counters().get(Counter::kDropNoReceive), 1u);
  EXPECT_EQ(engine->counters().get(Counter::kDropWrongAddress), 0u);
  engine->destroy_address(handle);
}

TEST(EngineAddress, DestroyedWhilePacketsToItWait) {
  Valve valve;
  auto engine = make_engine_behind(valve);
  UdQp ud(*engine);
  ud.to_rts();
  uint32_t handle = 0;
  ASSERT_EQ(engine->create_address(vector_to(kPeer), handle), 0);
  valve.open = false;
  for (uint64_t i = 0; i < 10; ++i) ud.send(i, handle);
  engine->destroy_address(handle);
  const std::vector<Cqe> cqes = ud.wait(10);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(cqes[i].wr_id, i);
    EXPECT_EQ(cqes[i].status, WcStatus::kSuccess);
  }
  valve.open = true;
  ASSERT_EQ(engine->create_address(vector_to(kPeer), handle), 0);
  ud.send(10, handle);
  ud.wait(1);
  EXPECT_EQ(valve.passed, 1u);
  engine->destroy_address(handle);
}

// --- changes that the packet I/O is told of --------------------------------------------------------------------------

TEST(EngineNetdev, VlansThatComeAreShownToThePacketIo) {
  auto view = std::make_shared<StackedNetView>();
  std::mutex lock;
  std::vector<std::string> shown;
  const auto open = [&](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(io::make_memory_loop());
    opened.follow = [&](const net::Netdev& now, const OpenedIo::Exclusively&) {
      std::lock_guard guard(lock);
      shown = now.vlans;
      return kNever;
    };
    return std::variant<OpenedIo, io::IoError>(std::move(opened));
  };
  auto engine = std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open));
  UdQp ud(*engine);
  for (size_t count = 1; count <= 2; ++count) {
    view->add_vlan();
    ASSERT_TRUE(eventually([&] {
      std::lock_guard guard(lock);
      return shown.size() == count;
    }));
  }
  std::lock_guard guard(lock);  // the background thread goes on looking
  EXPECT_EQ(shown.back(), "test0.1");
}

// A wire that can have longer packets from some moment on.
class GrowingIo final : public io::PacketIo {
 public:
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return length; }
  std::string description() const override { return "growing"; }
  io::IoCounters counters() const override { return {}; }

  uint32_t length = 600;  // changes while nobody moves packets
};

// It is looked at when it has said so, and path MTUs are those of what has become of it.
TEST(EngineNetdev, ThePacketIoMayBeOpenedAnew) {
  auto view = std::make_shared<FixedNetView>();
  std::atomic<int> looks{0};
  const auto open = [&](const net::Netdev&) {
    OpenedIo opened;
    auto wire = std::make_unique<GrowingIo>();
    opened.follow = [&looks, io = wire.get()](const net::Netdev&, const OpenedIo::Exclusively& exclusively) {
      if (++looks == 1) return monotonic_now() + std::chrono::milliseconds(1);
      exclusively([io] { io->length = 1480; });
      return kNever;
    };
    opened.io.push_back(std::move(wire));
    return std::variant<OpenedIo, io::IoError>(std::move(opened));
  };
  auto engine = std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open));
  UdQp ud(*engine);
  EXPECT_TRUE(eventually([&] { return engine->port_status().active_mtu == 1024; }));
  EXPECT_EQ(looks, 2);
}

// --- QPs that end while packets wait ---------------------------------------------------------------------------------

// The flush gives the application its memory back: nothing of it may leave afterwards.
TEST(EngineEnd, NothingLeavesAfterErrorOrReset) {
  for (const QpState end : {QpState::kErr, QpState::kReset}) {
    Valve valve;
    auto engine = make_engine_behind(valve);
    UdQp ud(*engine), other(*engine);
    ud.to_rts();
    other.to_rts();
    uint32_t handle = 0;
    ASSERT_EQ(engine->create_address(vector_to(kPeer), handle), 0);
    valve.open = false;
    for (uint64_t i = 0; i < 10; ++i) ud.send(i, handle);
    QpAttributes attr;
    attr.state = end;
    ASSERT_EQ(engine->modify_qp(*ud.qp, attr, transport::kQpState), 0);
    if (end == QpState::kErr) {
      for (const Cqe& cqe : ud.wait(10)) EXPECT_EQ(cqe.status, WcStatus::kFlushError);
    } else {
      EXPECT_TRUE(ud.cq.empty());
    }
    valve.open = true;
    other.send(1, handle);
    other.wait(1);
    EXPECT_EQ(valve.passed, 1u);
    EXPECT_TRUE(ud.cq.empty());
    engine->destroy_address(handle);
  }
}

// --- a packet I/O that cannot at the moment --------------------------------------------------------------------------

class EnginePressure : public testing::Test {
 protected:
  void SetUp() override {
    ud_.to_rts();
    ASSERT_EQ(engine_->create_address(vector_to(kPeer), handle_), 0);
  }
  void TearDown() override { engine_->destroy_address(handle_); }

  Valve valve_;
  const std::shared_ptr<Engine> engine_ = make_engine_behind(valve_);
  UdQp ud_{*engine_};
  uint32_t handle_ = 0;
};

// The sends have completed, so nobody else would ever ask again.
TEST_F(EnginePressure, KicksThatWerePutOffAreRepeatedByTheBackgroundThread) {
  valve_.kickable = false;
  ud_.send(1, handle_);
  ud_.wait(1);
  const uint32_t kicks = valve_.kicks, kicked = valve_.kicked;
  ASSERT_TRUE(eventually([&] { return valve_.kicks >= kicks + 20; }));
  valve_.kickable = true;
  ASSERT_TRUE(eventually([&] { return valve_.kicked > kicked; }));
  for (int i = 0; i < 100; ++i) engine_->progress();
  EXPECT_EQ(valve_.kicked, kicked + 1) << "there is nothing more to kick";
}

// Packets may arrive meanwhile, and room is told of by the same descriptors.
TEST_F(EnginePressure, SleepsOnThePacketIoWhileItHasNoRoom) {
  valve_.open = false;
  ud_.send(1, handle_);
  const uint32_t slept_on = valve_.slept_on;
  ASSERT_TRUE(eventually([&] { return valve_.slept_on >= slept_on + 20; }));
  valve_.open = true;
  ud_.wait(1);
  EXPECT_EQ(valve_.passed, 1u);
}

// --- multicast -------------------------------------------------------------------------------------------------------

TEST(EngineMulticast, RefusesWhatIsNoGroupOrNoMember) {
  auto engine = make_engine();
  UdQp ud(*engine);
  Connection rc(*engine);
  EXPECT_EQ(engine->attach_multicast(*ud.qp, kPeer), EINVAL);
  EXPECT_EQ(engine->attach_multicast(*rc.a, group(1)), EINVAL);
  EXPECT_EQ(engine->detach_multicast(*ud.qp, group(1)), EINVAL);
  EXPECT_EQ(engine->attach_multicast(*ud.qp, group(1)), 0);
  EXPECT_EQ(engine->attach_multicast(*ud.qp, group(1)), 0) << "it is in it already";
  EXPECT_EQ(engine->detach_multicast(*ud.qp, group(1)), 0);
  EXPECT_EQ(engine->detach_multicast(*ud.qp, group(1)), EINVAL);
}

struct Joins {
  std::vector<wire::IpAddress> joined, left, steered;
  int answer = 0;
};
std::shared_ptr<Engine> make_engine_with(Joins& joins) {
  auto view = std::make_shared<FixedNetView>();
  const net::Netdev netdev = *view->netdev(1);
  return std::make_shared<Engine>(std::make_unique<Device>(netdev, view, DeviceOptions{}, [&joins](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(io::make_memory_loop());
    opened.join = [&joins](const wire::IpAddress& address) {
      if (joins.answer == 0) joins.joined.push_back(address);
      return joins.answer;
    };
    opened.leave = [&joins](const wire::IpAddress& address) { joins.left.push_back(address); };
    opened.set_addresses = [&joins](const wire::MacAddress&, std::span<const wire::IpAddress> addresses) {
      joins.steered.assign(addresses.begin(), addresses.end());
      return 0;
    };
    return std::variant<OpenedIo, io::IoError>(std::move(opened));
  }));
}

TEST(EngineMulticast, TheHostIsInAGroupWhileAQpIs) {
  using testing::ElementsAre;
  Joins joins;
  auto engine = make_engine_with(joins);
  {
    UdQp one(*engine);
    {
      UdQp two(*engine);
      ASSERT_EQ(engine->attach_multicast(*one.qp, group(1)), 0);
      ASSERT_EQ(engine->attach_multicast(*two.qp, group(1)), 0);
      EXPECT_EQ(joins.joined, (std::vector{group(1)}));
      EXPECT_EQ(joins.steered, (std::vector{kOwnAddress, group(1)}));
      ASSERT_EQ(engine->detach_multicast(*one.qp, group(1)), 0);
      EXPECT_TRUE(joins.left.empty());
      ASSERT_EQ(engine->attach_multicast(*two.qp, group(2)), 0);
    }
    EXPECT_EQ(joins.left, (std::vector{group(1), group(2)})) << "the last one was destroyed";
    EXPECT_EQ(joins.steered, (std::vector{kOwnAddress}));
    joins.answer = ENOBUFS;
    EXPECT_EQ(engine->attach_multicast(*one.qp, group(3)), ENOBUFS);
    EXPECT_EQ(engine->detach_multicast(*one.qp, group(3)), EINVAL) << "and it is not in it";
  }
}

// Addresses of other netdevs as well, and as they come.
// What was told before there was a thread woke nobody.
TEST(EngineNetdev, WhatCameBeforeTheThreadIsToldOf) {
  auto view = std::make_shared<GrowingNetView>();
  auto engine =
      std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open_nothing));
  view->grow();
  std::atomic<int> events{0};
  EventHandler handler = [&](const EventSubject& subject) {
    events += subject.event == transport::AsyncEvent::kGidChange ? 1 : 0;
  };
  engine->add_event_handler(&handler);
  EXPECT_TRUE(eventually([&] { return events > 0; }));
  engine->remove_event_handler(&handler);
}

TEST(EngineAddresses, ThePacketIoKnowsWhichAreOfThisHost) {
  using testing::ElementsAre;
  class TwoNetdevs final : public FixedNetView {
   public:
    std::vector<net::Netdev> netdevs() override {
      std::vector<net::Netdev> all = {*netdev(1)};
      if (!second) return all;
      all.push_back(all[0]);
      all[1].index = 2;
      all[1].addresses = {GrowingNetView::kSecondAddress};
      return all;
    }
    void add_second() {
      second = true;
      net::News news;
      news.netdevs = true;
      tell_listeners(news);
    }
    std::atomic<bool> second{false};
  };
  auto view = std::make_shared<TwoNetdevs>();
  LeafMutex lock;  // it is told under the shards' locks
  std::vector<wire::IpAddress> told;
  const auto open = [&](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(io::make_memory_loop());
    opened.set_host_addresses = [&](std::span<const wire::IpAddress> addresses) {
      std::lock_guard guard(lock);
      told.assign(addresses.begin(), addresses.end());
    };
    return std::variant<OpenedIo, io::IoError>(std::move(opened));
  };
  auto engine = std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open));
  UdQp ud(*engine);
  {
    std::lock_guard guard(lock);
    EXPECT_THAT(told, ElementsAre(kOwnAddress));
  }
  view->add_second();
  ASSERT_TRUE(eventually([&] {
    std::lock_guard guard(lock);
    return told.size() == 2;
  }));
  std::lock_guard guard(lock);
  EXPECT_THAT(told, ElementsAre(kOwnAddress, GrowingNetView::kSecondAddress));
}

TEST(EngineMulticast, LimitOfQpsInOneGroup) {
  auto engine = make_engine();
  std::vector<std::unique_ptr<UdQp>> qps;
  for (uint32_t i = 0; i <= Limits::kMaxMulticastQps; ++i) qps.push_back(std::make_unique<UdQp>(*engine));
  for (uint32_t i = 0; i < Limits::kMaxMulticastQps; ++i) {
    ASSERT_EQ(engine->attach_multicast(*qps[i]->qp, group(1)), 0) << i;
  }
  EXPECT_EQ(engine->attach_multicast(*qps.back()->qp, group(1)), ENOMEM);
  EXPECT_EQ(engine->attach_multicast(*qps[0]->qp, group(1)), 0) << "it is in it already";
  EXPECT_EQ(engine->attach_multicast(*qps.back()->qp, group(2)), 0);
  ASSERT_EQ(engine->detach_multicast(*qps[0]->qp, group(1)), 0);
  EXPECT_EQ(engine->attach_multicast(*qps.back()->qp, group(1)), 0);
}

TEST(EngineMulticast, LimitOfGroups) {
  auto engine = make_engine();
  UdQp one(*engine), two(*engine);
  for (uint32_t i = 0; i < Limits::kMaxMulticastGroups; ++i) {
    ASSERT_EQ(engine->attach_multicast(*one.qp, group(i)), 0) << i;
  }
  EXPECT_EQ(engine->attach_multicast(*one.qp, group(Limits::kMaxMulticastGroups)), ENOMEM);
  EXPECT_EQ(engine->attach_multicast(*two.qp, group(5)), 0) << "no new group";
}

// Only sockets that have joined get copies, and a lease has one of each IP version.
TEST(EngineMulticast, FewerGroupsWhereThePacketIoTakesFewer) {
  const auto open_leased = [](const net::Netdev& netdev) {
    auto opened = open_nothing(netdev);
    std::get<OpenedIo>(opened).max_groups = 7;
    return opened;
  };
  for (const bool leased : {true, false}) {
    auto engine = leased ? make_engine(1, open_leased) : make_engine(1);
    EXPECT_EQ(engine->max_multicast_groups(), 20u) << "not known yet";
    const UdQp qp(*engine);
    EXPECT_EQ(engine->max_multicast_groups(), leased ? 7 : Limits::kMaxMulticastGroups);
  }
}

// --- shared receive queues -------------------------------------------------------------------------------------------

// One thread sends and posts, another changes the queue's size; what is posted stays in order.
TEST(EngineSrq, ResizedUnderTraffic) {
  auto engine = make_engine();
  SrqInit settings{.pd = 1, .max_wr = 64, .max_sge = 1};
  Srq* srq = nullptr;
  ASSERT_EQ(engine->create_srq(settings, srq), 0);
  {
    CompletionQueue cq(256, nullptr);
    Buffer buffer(*engine);
    QpInit init;
    init.pd = 1;
    init.max_send_wr = 64;
    init.max_inline = 64;
    init.send_cq = init.recv_cq = &cq;
    init.srq = srq;
    Qp* qp = nullptr;
    ASSERT_EQ(engine->create_qp(init, qp), 0);
    Connection c(*engine);
    c.move(*c.a, QpState::kReset);
    c.connect(*c.a, Engine::qpn(*qp));
    c.connect(*qp, Engine::qpn(*c.a));
    uint64_t posted = 0, received = 0;
    for (uint64_t i = 0; i < 400; ++i) {
      if (i % 7 == 0) {
        const int error = engine->resize_srq(*srq, i % 2 == 0 ? 64 : 20);
        EXPECT_TRUE(error == 0 || error == EINVAL);
      }
      while (posted < received + 16) {
        const queue::Sge sge = buffer.sge(posted % 32);
        ASSERT_TRUE(Engine::receive_queue(*srq).post(posted, {&sge, 1}));
        ++posted;
      }
      ASSERT_TRUE(c.send(*c.a, i));
      bool sent = false;
      const uint64_t before = received;
      while (!sent || received == before) {
        c.cq_a.poll(1, [&](const Cqe& cqe) { sent = cqe.status == WcStatus::kSuccess; });
        cq.poll(1, [&](const Cqe& cqe) {
          EXPECT_EQ(cqe.status, WcStatus::kSuccess);
          EXPECT_EQ(cqe.wr_id, received++);
        });
        engine->progress();
      }
      ASSERT_EQ(buffer.words[i % 32], i);
    }
    EXPECT_EQ(engine->resize_srq(*srq, 14), EINVAL) << "15 are posted";
    engine->destroy_qp(qp);
  }
  engine->destroy_srq(srq);
}

}  // namespace
}  // namespace uroce::engine::test

// SPDX-License-Identifier: BSD-2-Clause
// QP1 of a device, over an engine without a network: what it sends to its own address arrives at itself.
#include "cm/local/gsi_qp.h"

#include <atomic>
#include <cerrno>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tests/engine/device/engine_rig.h"

namespace uroce::rdma_cm {
namespace {

using engine::test::eventually;
using engine::test::kOwnAddress;

cm::Datagram datagram_to(const wire::IpAddress& destination, uint8_t content = 1) {
  cm::Datagram datagram;
  datagram.source = kOwnAddress;
  datagram.destination = destination;
  datagram.traffic_class = 0x20;
  datagram.mad.fill(content);
  return datagram;
}

struct GsiQpTest : testing::Test {
  void SetUp() override {
    ASSERT_EQ(GsiQp::open(
                  engine, [this] { ++calls; }, gsi),
              0);
  }
  // Until `count` have come.
  std::vector<cm::Datagram> wait(size_t count) {
    std::vector<cm::Datagram> came;
    const bool all = eventually([&] {
      gsi->receive([&](const cm::Datagram& datagram) { came.push_back(datagram); });
      return came.size() >= count;
    });
    EXPECT_TRUE(all);
    return came;
  }

  std::shared_ptr<engine::Engine> engine = engine::test::make_engine(1);
  std::atomic<int> calls{0};
  std::unique_ptr<GsiQp> gsi;
};

TEST_F(GsiQpTest, DatagramsArriveAsTheyWereSent) {
  const cm::Datagram sent = datagram_to(kOwnAddress);
  ASSERT_EQ(gsi->send(sent), 0);
  const std::vector<cm::Datagram> came = wait(1);
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0].mad, sent.mad);
  EXPECT_EQ(came[0].source, kOwnAddress);
  EXPECT_EQ(came[0].destination, kOwnAddress);
  EXPECT_EQ(came[0].source_qpn, wire::kGsiQpn);
  EXPECT_EQ(came[0].traffic_class, sent.traffic_class);
  EXPECT_EQ(came[0].hop_limit, 64);  // the route's
}

// The background thread of the engine moves them; nobody polls until told to.
TEST_F(GsiQpTest, SaysWhenThereIsSomething) {
  for (uint8_t round = 1; round <= 3; ++round) {
    const int before = calls;
    ASSERT_EQ(gsi->send(datagram_to(kOwnAddress, round)), 0);
    ASSERT_TRUE(eventually([&] { return calls > before; }));
    EXPECT_EQ(wait(1).at(0).mad[0], round);
    while (gsi->receive([](const cm::Datagram&) { ADD_FAILURE(); })) continue;
  }
}

// More than the queues hold, one after the other: each is there once, and the rooms are used again.
TEST_F(GsiQpTest, ManyInTurn) {
  constexpr int kMany = 5000;
  std::vector<cm::Datagram> came;
  for (int i = 0; i < kMany; ++i) {
    cm::Datagram datagram = datagram_to(kOwnAddress);
    datagram.mad[0] = static_cast<uint8_t>(i);
    datagram.mad[1] = static_cast<uint8_t>(i >> 8);
    ASSERT_EQ(gsi->send(datagram), 0);
    const std::vector<cm::Datagram> next = wait(1);
    came.insert(came.end(), next.begin(), next.end());
  }
  std::set<int> numbers;
  for (const cm::Datagram& datagram : came) numbers.insert(datagram.mad[0] | datagram.mad[1] << 8);
  EXPECT_EQ(came.size(), size_t{kMany});
  EXPECT_EQ(numbers.size(), size_t{kMany});
}

// Different ways to one peer, more than are remembered.
TEST_F(GsiQpTest, ManyWays) {
  for (uint32_t label = 0; label < 3000; ++label) {
    cm::Datagram datagram = datagram_to(kOwnAddress);
    datagram.flow_label = label;
    ASSERT_EQ(gsi->send(datagram), 0) << label;
    wait(1);
  }
}

// Whoever floods QP1 loses his datagrams, and later ones arrive.
TEST_F(GsiQpTest, AFloodEnds) {
  for (int i = 0; i < 5000; ++i) {
    const int error = gsi->send(datagram_to(kOwnAddress));
    ASSERT_TRUE(error == 0 || error == ENOBUFS) << error;
  }
  EXPECT_TRUE(eventually([&] {
    size_t came = 0;
    gsi->receive([&](const cm::Datagram&) { ++came; });
    return came == 0;
  }));
  ASSERT_TRUE(eventually([&] { return gsi->send(datagram_to(kOwnAddress, 9)) == 0; }));
  ASSERT_TRUE(eventually([&] {
    bool last = false;
    gsi->receive([&](const cm::Datagram& datagram) { last |= datagram.mad[0] == 9; });
    return last;
  }));
}

TEST_F(GsiQpTest, WhatCannotBeSent) {
  const wire::IpAddress elsewhere = wire::IpAddress::v4(std::array<uint8_t, 4>{198, 51, 100, 1}.data());
  EXPECT_EQ(gsi->send(datagram_to(elsewhere)), ENETUNREACH);
  cm::Datagram datagram = datagram_to(kOwnAddress);
  datagram.source = elsewhere;
  EXPECT_EQ(gsi->send(datagram), EINVAL);
}

// What a BusyIo has taken, and how many offers it still refuses: those of the thread that made it count, and not those
// of the background thread, since it would be luck what that one has sent.
struct Busyness {
  std::atomic<uint32_t> taken{0}, refusals{0};
};

class BusyIo final : public io::PacketIo {
 public:
  explicit BusyIo(Busyness& busyness) : busyness_(busyness) {}
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override {
    if (busyness_.refusals > 0) {
      if (std::this_thread::get_id() == maker_) --busyness_.refusals;
      return 0;
    }
    busyness_.taken += static_cast<uint32_t>(burst.size());
    return burst.size();
  }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4352; }
  std::string description() const override { return "busy"; }
  io::IoCounters counters() const override { return {}; }

 private:
  Busyness& busyness_;
  const std::thread::id maker_ = std::this_thread::get_id();
};

class NetworkOfOthers final : public engine::test::FixedNetView {
 public:
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& to) override {
    return net::Route{.next_hop = to, .mtu = 1500};
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override {
    return {.state = net::NeighbourState::kUsable, .mac = {2, 0, 0, 0, 0, 1}};
  }
};

struct GsiQpOfABusyNetdev : testing::Test {
  void SetUp() override {
    auto view = std::make_shared<NetworkOfOthers>();
    const net::Netdev netdev = *view->netdev(1);
    const engine::IoOpener open = [this](const net::Netdev&) {
      engine::OpenedIo opened;
      opened.io.push_back(std::make_unique<BusyIo>(busyness));
      return std::variant<engine::OpenedIo, io::IoError>(std::move(opened));
    };
    engine::DeviceOptions options;
    options.shards = 1;
    engine = std::make_shared<engine::Engine>(std::make_unique<engine::Device>(netdev, view, options, open));
    ASSERT_EQ(GsiQp::open(
                  engine, [] {}, gsi),
              0);
  }

  const wire::IpAddress elsewhere = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 9}.data());
  Busyness busyness;
  std::shared_ptr<engine::Engine> engine;
  std::unique_ptr<GsiQp> gsi;
};

TEST_F(GsiQpOfABusyNetdev, TakesMoreThanItsQueueHolds) {
  constexpr uint32_t kQueue = 256, kMore = 100;
  busyness.refusals = UINT32_MAX;
  for (uint32_t i = 0; i < kQueue; ++i) ASSERT_EQ(gsi->send(datagram_to(elsewhere)), 0) << i;
  ASSERT_EQ(busyness.taken, 0u);
  busyness.refusals = 4;
  for (uint32_t i = 0; i < kMore; ++i) ASSERT_EQ(gsi->send(datagram_to(elsewhere)), 0) << i;
  EXPECT_TRUE(eventually([&] { return busyness.taken == kQueue + kMore; }));
}

TEST_F(GsiQpOfABusyNetdev, SendsWhatWaitsBeforeItEnds) {
  busyness.refusals = UINT32_MAX;
  for (uint32_t i = 0; i < 200; ++i) ASSERT_EQ(gsi->send(datagram_to(elsewhere)), 0) << i;
  ASSERT_EQ(busyness.taken, 0u);
  busyness.refusals = 4;
  gsi.reset();
  EXPECT_EQ(busyness.taken, 200u);
}

// One that takes nothing any more costs the wait once, not with each datagram: these would take half an hour.
TEST_F(GsiQpOfABusyNetdev, SaysThatTheQueueIsFull) {
  busyness.refusals = UINT32_MAX;
  int full = 0;
  for (int i = 0; i < 20'000; ++i) full += gsi->send(datagram_to(elsewhere)) == ENOBUFS ? 1 : 0;
  EXPECT_GT(full, 19'000);
}

// What is no datagram of 256 bytes, or has not the Q_Key of QP1, never arrives.
TEST_F(GsiQpTest, OthersCanSendToItToo) {
  queue::CompletionQueue cq(64, nullptr);
  engine::QpInit init;
  init.type = transport::QpType::kUd;
  init.pd = 1;
  init.max_send_wr = init.max_recv_wr = 8;
  init.max_inline = 512;
  init.send_cq = init.recv_cq = &cq;
  engine::Qp* qp = nullptr;
  ASSERT_EQ(engine->create_qp(init, qp), 0);
  using namespace transport;
  QpAttributes attributes;
  attributes.port = 1;
  attributes.qkey = wire::kGsiQkey;
  attributes.state = QpState::kInit;
  ASSERT_EQ(engine->modify_qp(*qp, attributes, kQpState | kQpPkeyIndex | kQpPort | kQpQkey), 0);
  attributes.state = QpState::kRtr;
  ASSERT_EQ(engine->modify_qp(*qp, attributes, kQpState), 0);
  attributes.state = QpState::kRts;
  ASSERT_EQ(engine->modify_qp(*qp, attributes, kQpState | kQpSqPsn), 0);
  AddressVector vector;
  vector.destination = kOwnAddress;
  uint32_t handle = 0;
  ASSERT_EQ(engine->create_address(vector, handle), 0);
  const auto send = [&](uint32_t length, uint32_t qkey, uint8_t content) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(engine::Engine::send_queue(*qp).reserve(0, slot));
    *slot.wqe = {};
    slot.wqe->opcode = queue::WrOpcode::kSend;
    slot.wqe->flags = queue::kInline;
    slot.wqe->length = length;
    slot.wqe->ud = {.address_handle = handle, .remote_qpn = 1, .remote_qkey = qkey};
    std::fill_n(slot.inline_data, length, content);
    engine::Engine::send_queue(*qp).publish(1);
    engine->doorbell(*qp);
  };
  constexpr uint32_t kOwnQkey = 1u << 31;  // that of the sending QP is taken
  send(255, kOwnQkey, 1);
  send(0, kOwnQkey, 2);
  send(300, kOwnQkey, 3);
  send(256, 0, 4);
  ASSERT_EQ(gsi->send(datagram_to(kOwnAddress, 5)), 0);
  EXPECT_EQ(wait(1).at(0).mad[0], 5);
  engine->destroy_qp(qp);
  engine->destroy_address(handle);
}

TEST_F(GsiQpTest, ADeviceHasOne) {
  std::unique_ptr<GsiQp> second;
  EXPECT_EQ(GsiQp::open(
                engine, [] {}, second),
            EBUSY);
  gsi.reset();
  EXPECT_EQ(GsiQp::open(
                engine, [] {}, second),
            0);
}

TEST(GsiQpOfShards, IsNotThere) {
  std::unique_ptr<GsiQp> gsi;
  EXPECT_EQ(GsiQp::open(
                engine::test::make_engine(4), [] {}, gsi),
            ENOTSUP);
}

}  // namespace
}  // namespace uroce::rdma_cm

// SPDX-License-Identifier: BSD-2-Clause
// Packets to processes of this host that are no peers go by the network, into sockets that they can make slow.
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "tests/engine/io/same_host/same_host_rig.h"

namespace uroce::io::test {
namespace {

// Each packet of one range takes processor time.
class SlowTo final : public PacketIo {
 public:
  SlowTo(std::unique_ptr<MemoryEnd> end, uint32_t range) : end_(std::move(end)), range_(range) {}
  size_t receive(std::span<RxPacket> out) override { return end_->receive(out); }
  size_t send(std::span<io::TxPacket> burst) override {
    for (const io::TxPacket& packet : burst) {
      const uint32_t range = wire::load_be24(&packet.header[5]) >> kRangeBits;
      for (const Duration begin = thread_time(); is_slow && range == range_ && thread_time() - begin < kTakes;)
        continue;
      ++(range == range_ ? slow : others);
    }
    return end_->send(burst);
  }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return end_->max_udp_length(); }
  std::string description() const override { return "slow"; }
  IoCounters counters() const override { return end_->counters(); }

  static constexpr Duration kTakes = std::chrono::milliseconds(3);
  int slow = 0, others = 0;
  bool is_slow = true;

 private:
  const std::unique_ptr<MemoryEnd> end_;
  const uint32_t range_;
};

class SlowNetwork : public SameHostTest {
 protected:
  SlowNetwork() {
    test_time += std::chrono::hours(1);
    auto slow = std::make_unique<SlowTo>(make_memory_loop(), kTheirs);
    network = slow.get();
    io = std::make_unique<SameHost>(std::move(slow), SameHost::Config{.range_bits = kRangeBits,
                                                                      .meet = [this](uint32_t) { ++met; },
                                                                      .bury = [] {},
                                                                      .peers = std::make_shared<PeerExchange>(),
                                                                      .now = [] { return test_time; }});
  }
  // One to the slow range between two others, of which one is of this host.
  void send() {
    TestBurst burst;
    add(burst, 0, 100, kTheirs + 1);
    add(burst, 1, 100, kTheirs);
    add(burst, 2, 100, kTheirs + 1);
    burst.packets().back().to_this_host = false;
    if (to_group) {
      burst.packets()[1].to_this_host = false;
      burst.packets()[1].local_delivery = true;
      burst.packets()[1].envelope = &group_;
    }
    EXPECT_EQ(io->send(burst.packets()), 3u);
  }

  wire::Envelope group_ = [] {
    wire::Envelope group = envelope_v4();
    group.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{224, 0, 2, 9}.data());
    return group;
  }();
  bool to_group = false;  // in place of the slow range
  int met = 0;
  SlowTo* network;
  std::unique_ptr<SameHost> io;
};

TEST_F(SlowNetwork, WhoTakesLongGetsAPartOfTheTime) {
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(network->slow, 2);
  EXPECT_EQ(network->others, 20);
  EXPECT_EQ(io->counters().tx_unread, 8u);
  test_time += SlowTo::kTakes * 50;
  send();
  EXPECT_EQ(network->slow, 2);
  test_time += std::chrono::seconds(20);  // how long it took is the machine's to say
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(network->slow, 3);
}

// Whoever is in a group on this host is woken, too.
TEST_F(SlowNetwork, GroupsAreNoExceptionButNotMet) {
  to_group = true;
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(network->slow, 2);
  EXPECT_EQ(network->others, 20);
  EXPECT_EQ(met, 4) << "the other range: with the first, second, fourth, eighth packet";
}

void spin(Duration time) {
  for (const Duration begin = thread_time(); thread_time() - begin < time;) continue;
}

TEST(Cost, OneThatTakesLongerThanAnyHiccupIsTooMuch) {
  const auto takes = [](Duration time) {
    Cost cost;
    cost.account_for(1, [time] { spin(time); });
    return cost.is_too_much();
  };
  EXPECT_FALSE(takes(std::chrono::milliseconds(3)));
  EXPECT_TRUE(takes(std::chrono::milliseconds(120)));
}

TEST(Cost, ManyMayTakeAsLongAsEachMay) {
  const auto is_too_much = [](size_t count) {
    Cost cost;
    for (int i = 0; i < 8; ++i) cost.account_for(count, [] { spin(std::chrono::milliseconds(1)); });
    return cost.is_too_much();
  };
  EXPECT_TRUE(is_too_much(1));
  EXPECT_FALSE(is_too_much(1000));
}

// A processor of a virtual machine may be taken away at any time.
TEST_F(SlowNetwork, OneThatTakesLongIsForgiven) {
  send();
  network->is_slow = false;
  for (int i = 0; i < 100; ++i) send();
  network->is_slow = true;
  send();
  network->is_slow = false;
  for (int i = 0; i < 100; ++i) send();
  EXPECT_EQ(io->counters().tx_unread, 0u);
}

}  // namespace
}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// Packets to processes of this host that are no peers go by the network, into sockets that they can make slow.
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "tests/engine/io/same_host/same_host_rig.h"

namespace uroce::io::test {
namespace {

void spin(Duration time) {
  for (const Duration begin = thread_time(); thread_time() - begin < time;) continue;
}

// Each packet to a range that is slow takes processor time.
class SlowTo final : public PacketIo {
 public:
  SlowTo(std::unique_ptr<MemoryEnd> end, uint32_t range) : ranges{range}, end_(std::move(end)) {}
  size_t receive(std::span<RxPacket> out) override { return end_->receive(out); }
  size_t send(std::span<io::TxPacket> burst) override {
    for (const io::TxPacket& packet : burst) {
      const bool is_to_it = ranges.contains(wire::load_be24(&packet.header[5]) >> kRangeBits);
      if (is_slow && is_to_it) spin(takes);
      ++(is_to_it ? slow : others);
    }
    return end_->send(burst);
  }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return end_->max_udp_length(); }
  std::string description() const override { return "slow"; }
  IoCounters counters() const override { return end_->counters(); }

  Duration takes = std::chrono::milliseconds(60);  // two are too much
  int slow = 0, others = 0;
  bool is_slow = true;
  std::set<uint32_t> ranges;

 private:
  const std::unique_ptr<MemoryEnd> end_;
};

class SlowNetwork : public SameHostTest {
 protected:
  SlowNetwork() { begin(); }
  void begin() {
    test_time += std::chrono::hours(1);
    met = 0;
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

  // Where the machine has been away in one of the calls that are not slow, all begins anew: to be sent no more is right
  // then.
  void send_ten() {
    for (int attempt = 0; attempt < 5; ++attempt) {
      if (attempt > 0) begin();
      for (int i = 0; i < 10; ++i) send();
      if (network->others == 20) return;
    }
  }

  static wire::Envelope to_group_of(uint8_t last) {
    wire::Envelope group = envelope_v4();
    group.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{224, 0, 2, last}.data());
    return group;
  }
  wire::Envelope group_ = to_group_of(9), other_group_ = to_group_of(10);
  bool to_group = false;  // in place of the slow range
  int met = 0;
  SlowTo* network;
  std::unique_ptr<SameHost> io;
};

// How long a call takes more than what it spins is the machine's to say: then fewer of them are too much.
TEST_F(SlowNetwork, WhoTakesLongGetsAPartOfTheTime) {
  send_ten();
  const int at_once = network->slow;
  EXPECT_TRUE(at_once == 1 || at_once == 2) << at_once;
  EXPECT_EQ(network->others, 20);
  EXPECT_EQ(io->counters().tx_unread, static_cast<uint64_t>(10 - at_once));
  test_time += std::chrono::milliseconds(100);
  send();
  EXPECT_EQ(network->slow, at_once);
  test_time += std::chrono::minutes(1);
  for (int i = 0; i < 10; ++i) send();
  EXPECT_TRUE(network->slow > at_once && network->slow <= at_once + 2) << network->slow;
}

// Whoever is in a group on this host is woken, too.
TEST_F(SlowNetwork, GroupsAreNoExceptionButNotMet) {
  to_group = true;
  send_ten();
  EXPECT_TRUE(network->slow == 1 || network->slow == 2) << network->slow;
  EXPECT_EQ(network->others, 20);
  EXPECT_EQ(met, 4) << "the other range: with the first, second, fourth, eighth packet";
}

// Anybody can join.
TEST_F(SlowNetwork, OtherGroupsGoOn) {
  to_group = true;
  for (int i = 0; i < 10; ++i) send();
  const int of_slow_one = network->slow;
  ASSERT_LE(of_slow_one, 2);
  network->is_slow = false;
  TestBurst burst;
  for (size_t i = 0; i < 2; ++i) {
    add(burst, i, 100, kTheirs);
    burst.packets()[i].to_this_host = false;
    burst.packets()[i].local_delivery = true;
  }
  burst.packets()[0].envelope = &group_;
  burst.packets()[1].envelope = &other_group_;
  EXPECT_EQ(io->send(burst.packets()), 2u);
  EXPECT_EQ(network->slow, of_slow_one + 1) << "of one burst";
}

// A user has as many ranges as others leave.
TEST_F(SlowNetwork, ManyWhoTakeLongGetNoMoreOfItThanOne) {
  constexpr uint32_t kFirst = kTheirs + 10, kCount = 8;
  for (uint32_t range = kFirst; range < kFirst + kCount; ++range) network->ranges.insert(range);
  const auto send_to_each = [this] {
    for (uint32_t range = kFirst; range < kFirst + kCount; ++range) {
      TestBurst burst;
      add(burst, 0, 100, range);
      io->send(burst.packets());
    }
    const int all = network->slow;
    network->slow = 0;
    return all;
  };
  EXPECT_EQ(send_to_each(), static_cast<int>(kCount));
  EXPECT_LE(send_to_each(), 1) << "the first one, which was not too much yet";
  test_time += std::chrono::seconds(10);
  EXPECT_EQ(send_to_each(), 0) << "time enough for one, not for all";
  send();
  EXPECT_EQ(network->others, 2) << "that have not been slow";
}

// A processor of a virtual machine may be taken away at any time.
TEST_F(SlowNetwork, OneThatTakesLongIsForgiven) {
  network->takes = std::chrono::milliseconds(3);
  for (int i = 0; i < 2; ++i) {
    test_time += std::chrono::minutes(1);
    network->is_slow = true;
    send();
    network->is_slow = false;
    const uint64_t lost = io->counters().tx_unread;
    for (int j = 0; j < 100; ++j) send();
    EXPECT_EQ(io->counters().tx_unread, lost);
  }
}

struct CostOfOne {
  Cost all{[] { return test_time; }};
  Cost::OfOne one;
  void takes(Duration time, size_t count = 1) {
    all.account_for(one, count, [time] { spin(time); });
  }
  bool is_too_much() const { return all.is_too_much(one); }
};

TEST(Cost, OneThatTakesLongerThanAnyHiccupIsTooMuch) {
  CostOfOne slow, slower;
  slow.takes(std::chrono::milliseconds(3));
  slower.takes(std::chrono::milliseconds(120));
  EXPECT_FALSE(slow.is_too_much());
  EXPECT_TRUE(slower.is_too_much());
}

// They are as many as the other side likes.
TEST(Cost, CheapOnesDoNotPayForOthers) {
  CostOfOne cost;
  for (int i = 0; i < 2; ++i) {
    cost.takes(std::chrono::milliseconds(60));
    for (int j = 0; j < 1000; ++j) cost.takes(Duration{}, 32);
  }
  EXPECT_TRUE(cost.is_too_much());
  test_time += std::chrono::minutes(1);
  EXPECT_FALSE(cost.is_too_much());
}

TEST(Cost, ManyMayTakeAsLongAsEachMay) {
  const auto is_too_much = [](size_t count) {
    CostOfOne cost;
    for (int i = 0; i < 20; ++i) cost.takes(std::chrono::milliseconds(8), count);
    return cost.is_too_much();
  };
  EXPECT_TRUE(is_too_much(1));
  EXPECT_FALSE(is_too_much(1000));
}

TEST(Cost, WhoHadNoPartInItIsNotToBlame) {
  CostOfOne cost;
  cost.takes(std::chrono::milliseconds(120));
  EXPECT_FALSE(cost.all.is_too_much(Cost::OfOne()));
}

}  // namespace
}  // namespace uroce::io::test

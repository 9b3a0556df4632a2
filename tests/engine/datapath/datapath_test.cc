// SPDX-License-Identifier: BSD-2-Clause
// What one round of the data path does, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/datapath/cable_rig.h"

namespace uroce::engine::test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class Rounds : public Cable {
 protected:
  // A QP whose sends are flushed in the round after they were posted.
  Station& failed() {
    Station& station = a.add(QpType::kRc);
    a.connect(station, b.address, 17);
    transport::QpAttributes attributes;
    attributes.state = QpState::kErr;
    EXPECT_EQ(station.qp->transport->modify(attributes, transport::kQpState, a.now), 0);
    a.datapath.reschedule(*station.qp, a.now);
    stations_.push_back(&station);
    return station;
  }
  const std::vector<Station*>& stations() const { return stations_; }

 private:
  std::vector<Station*> stations_;
};

// Threads take turns, and one may have read the clock long before it came to its round.
TEST_F(Rounds, TimeNeverGoesBackwards) {
  Station& station = failed();
  a.run();
  const Time latest = a.now;
  a.now -= std::chrono::milliseconds(1);
  a.post(station, work(WrOpcode::kSend, 1), 0, 8);
  a.run();
  const std::vector<Cqe> sends = station.sends();
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].timestamp, static_cast<uint64_t>(latest.time_since_epoch().count()));
}

// A wire on which packets never end, and which takes all there are.
class Endless final : public io::PacketIo {
 public:
  size_t receive(std::span<io::RxPacket> out) override {
    for (io::RxPacket& packet : out) packet = {};  // too short for anything
    return out.size();
  }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return false; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }
};

TEST_F(Rounds, AsManyPacketsAreTakenAsWereSent) {
  a.datapath.attach(std::make_unique<Endless>(), nullptr);
  const size_t alone = a.run().received;
  EXPECT_GT(alone, 0u);
  const uint32_t handle = a.handle_to(b.address);
  for (uint32_t i = 0; i < 10; ++i) {
    Station& station = a.add(QpType::kUd);
    a.connect(station);
    for (uint64_t message = 0; message < 60; ++message) a.datagram(station, message, handle, 17, 0, 8);
  }
  Datapath::Moved all;
  while (all.sent < 600) {
    const Datapath::Moved moved = a.run();
    ASSERT_GT(moved.sent, 0u);
    EXPECT_LT(moved.received, 8 * alone) << "one round does not take all there ever are";
    all += moved;
  }
  all += a.run();  // for what was sent last
  EXPECT_GE(all.received, all.sent);
  EXPECT_EQ(a.run().received, alone);
}

// As UDP sockets, of which a look is a system call.
class Telling final : public io::PacketIo {
 public:
  explicit Telling(bool drained) : drained_(drained) {}

  size_t receive(std::span<io::RxPacket> out) override {
    out.front() = {};
    return 1;
  }
  bool drained() const override { return drained_; }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return false; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

 private:
  const bool drained_;
};

TEST_F(Rounds, TheEndIsNotLookedForAgain) {
  const uint32_t handle = a.handle_to(b.address);
  Station& station = a.add(QpType::kUd);
  a.connect(station);
  for (const bool drained : {true, false}) {
    a.datapath.attach(std::make_unique<Telling>(drained), nullptr);
    a.run();
    for (uint64_t message = 0; message < 60; ++message) a.datagram(station, message, handle, 17, 0, 8);
    const Datapath::Moved moved = a.run();
    ASSERT_GT(moved.sent, 20u);
    const Datapath::Moved next = a.run();  // what was sent last in a round counts for the next
    if (drained) {
      EXPECT_EQ(moved.received, 1u);
      EXPECT_EQ(next.received, 1u);
    } else {
      EXPECT_GT(moved.received + next.received, 20u);
    }
  }
}

TEST_F(Rounds, WhoRangFirstIsServedFirst) {
  Station& receiver = b.add(QpType::kUd);
  b.connect(receiver);
  const uint32_t handle = a.handle_to(b.address);
  std::vector<Station*> senders;
  for (uint32_t i = 0; i < 5; ++i) {
    senders.push_back(&a.add(QpType::kUd));
    a.connect(*senders.back());
    b.post_receive(receiver, i, 0, 1024);
  }
  for (uint32_t i = 0; i < 5; ++i) a.datagram(*senders[i], i, handle, receiver.qpn(), 4096, 10 + i);
  run();
  std::vector<uint32_t> lengths;
  for (const Cqe& cqe : receiver.receives()) lengths.push_back(cqe.byte_length - 40);
  EXPECT_THAT(lengths, ElementsAre(10, 11, 12, 13, 14));
}

// However many doorbells ring or timers expire at once, one round is not all theirs, and the next one takes the rest.
TEST_F(Rounds, ManyDoorbellsTakeSeveral) {
  constexpr size_t kStations = 300;
  for (size_t i = 0; i < kStations; ++i) a.post(failed(), work(WrOpcode::kSend, i), 0, 8);
  const auto flushed = [this] {
    size_t count = 0;
    for (Station* station : stations()) count += station->sends().size();
    return count;
  };
  a.run();
  const size_t first = flushed();
  EXPECT_LT(first, kStations);
  EXPECT_TRUE(a.datapath.unfinished());
  a.run();
  EXPECT_EQ(first + flushed(), kStations);
  EXPECT_FALSE(a.datapath.unfinished());
}

TEST_F(Rounds, ManyTimersTakeSeveral) {
  constexpr uint64_t kStations = 300;
  for (size_t i = 0; i < kStations; ++i) {
    Station& station = a.add(QpType::kRc);
    a.connect(station, b.address, 17);
    a.post(station, work(WrOpcode::kSend, i), 0, 8);
  }
  for (int i = 0; i < 10; ++i) a.run();
  a.now += std::chrono::milliseconds(2);  // the first probe is due
  a.run();
  const uint64_t first = a.count(Counter::kProbes);
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, kStations);
  EXPECT_LE(a.datapath.next_deadline(), a.now);
  a.run();
  EXPECT_EQ(a.count(Counter::kProbes), kStations);
}

}  // namespace
}  // namespace uroce::engine::test

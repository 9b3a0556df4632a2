// What one round of the data path does, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "engine/datapath/moderated_cqs.h"
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

// A wire whose kernel is short of something for some kicks.
class PuttingOff final : public io::PacketIo {
 public:
  explicit PuttingOff(int& kicks) : kicks_(kicks) {}
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return --kicks_ <= 0; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

 private:
  int& kicks_;
};

// Nothing else is to be done meanwhile.
TEST_F(Rounds, KicksThatWerePutOffAreRepeated) {
  Station& station = a.add(QpType::kUd);
  a.connect(station);
  const uint32_t handle = a.handle_to(b.address);
  int kicks = 6;
  a.datapath.attach(std::make_unique<PuttingOff>(kicks), nullptr);
  a.datagram(station, 1, handle, 17, 0, 8);
  while (kicks > 0) {
    const int before = kicks;
    a.run();
    ASSERT_LT(kicks, before) << "not kicked again";
    EXPECT_EQ(a.datapath.backpressured(), kicks > 0);
    EXPECT_EQ(a.datapath.unfinished(), kicks > 0);
  }
  EXPECT_THAT(station.sends(), SizeIs(1));
  a.run();
  EXPECT_EQ(kicks, 0) << "kicked without need";
}

// --- posts -----------------------------------------------------------------------------------------------------------

// A wire that counts: packets, and kicks that had any.
class Counting final : public io::PacketIo {
 public:
  size_t receive(std::span<io::RxPacket>) override {
    ++looks;
    return 0;
  }
  size_t send(std::span<io::TxPacket> burst) override {
    packets += burst.size();
    queued_ = true;
    return burst.size();
  }
  bool flush() override {
    if (std::exchange(queued_, false)) ++kicks;
    return true;
  }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4096; }
  std::string description() const override { return {}; }
  io::IoCounters counters() const override { return {}; }

  size_t packets = 0;
  int kicks = 0, looks = 0;

 private:
  bool queued_ = false;
};

// Datagrams to the wire, posted one by one.
class Posts : public Rounds {
 protected:
  Posts() {
    auto its_wire = std::make_unique<Counting>();
    wire = its_wire.get();
    a.datapath.attach(std::move(its_wire), nullptr);
    a.connect(station);
  }
  void queue() { a.datagram(station, 1, handle, 17, 0, 8); }
  void post() {
    queue();
    a.run(Datapath::Caller::kPosting);
  }
  // Until posts fill the pipe.
  void fill() {
    while (!a.datapath.unfinished()) post();
  }

  Counting* wire;
  Station& station = a.add(QpType::kUd);
  const uint32_t handle = a.handle_to(b.address);
};

TEST_F(Posts, OnlySend) {
  post();
  EXPECT_EQ(wire->packets, 1u);
  EXPECT_EQ(wire->looks, 0);
  a.run(Datapath::Caller::kPolling);
  EXPECT_EQ(wire->looks, 1);
}

TEST_F(Posts, LeaveAtOnceAFewTimesAndThenInCompany) {
  for (int i = 1; i <= 4; ++i) {
    post();
    EXPECT_EQ(wire->kicks, i);
  }
  for (size_t i = 1; i < 16; ++i) {
    post();
    EXPECT_EQ(wire->packets, 4u);
    EXPECT_TRUE(a.datapath.unfinished());
    EXPECT_FALSE(a.datapath.backpressured());
  }
  post();
  EXPECT_EQ(wire->packets, 20u);
  EXPECT_EQ(wire->kicks, 5);
  EXPECT_FALSE(a.datapath.unfinished());
}

class WhatWaits : public Posts, public testing::WithParamInterface<Datapath::Caller> {};

TEST_P(WhatWaits, LeavesWithTheNextRoundThatIsNoPost) {
  fill();
  const size_t before = wire->packets;
  a.run(GetParam());
  EXPECT_EQ(wire->packets, before + 1);
  EXPECT_FALSE(a.datapath.unfinished());
  const int kicks = wire->kicks;
  post();
  EXPECT_EQ(wire->kicks, kicks + 1) << "the pipe is empty again";
}

INSTANTIATE_TEST_SUITE_P(, WhatWaits, testing::Values(Datapath::Caller::kPolling, Datapath::Caller::kBackground));

TEST_F(Posts, LeaveBeforeASetUpCall) {
  fill();
  const size_t before = wire->packets;
  a.datapath.flush();
  EXPECT_EQ(wire->packets, before + 1);
  EXPECT_FALSE(a.datapath.unfinished());
}

// A burst makes room for the next one without a kick.
TEST_F(Posts, OfMoreThanABurstLeaveAltogether) {
  fill();
  for (int i = 0; i < 40; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->packets, 45u);
  EXPECT_EQ(wire->kicks, 5);
}

// Sending that much takes so long that the acknowledgements of it are not left for the next poll.
TEST_F(Posts, OfManyPacketsTakeArrivalsToo) {
  for (int i = 0; i < 31; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->looks, 0);
  for (int i = 0; i < 32; ++i) queue();
  a.run(Datapath::Caller::kPosting);
  EXPECT_EQ(wire->looks, 1);
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

// --- moderated completion queues -------------------------------------------------------------------------------------

struct Events final : queue::CompletionNotifier {
  void on_completion(queue::CompletionQueue&) override { ++count; }
  int count = 0;
};

TEST(ModeratedCqsTest, TheSoonestDeadlineCounts) {
  const auto at = [](int us) { return Time(std::chrono::microseconds(us)); };
  const auto push = [](queue::CompletionQueue& cq, int us) {
    cq.arm(queue::CompletionQueue::Arm::kAny);
    cq.push({.timestamp = static_cast<uint64_t>(us) * 1000});
  };
  ModeratedCqs moderated;
  Events slow_events, fast_events;
  queue::CompletionQueue slow(16, &slow_events), fast(16, &fast_events);
  moderated.moderate(slow, 8, std::chrono::microseconds(100));
  moderated.moderate(fast, 8, std::chrono::microseconds(10));
  EXPECT_EQ(moderated.next_deadline(), kNever);
  push(slow, 0);
  EXPECT_EQ(moderated.next_deadline(), at(100));
  push(fast, 50);
  EXPECT_EQ(moderated.next_deadline(), at(60));
  moderated.expire(at(59));
  EXPECT_EQ(fast_events.count, 0);
  moderated.expire(at(60));
  EXPECT_EQ(fast_events.count, 1);
  EXPECT_EQ(slow_events.count, 0);
  EXPECT_EQ(moderated.next_deadline(), at(100));
  moderated.expire(at(100));
  EXPECT_EQ(slow_events.count, 1);
  EXPECT_EQ(moderated.next_deadline(), kNever);
  moderated.moderate(fast, 0, {});
  push(fast, 200);
  EXPECT_EQ(fast_events.count, 2) << "at once";
  EXPECT_EQ(moderated.next_deadline(), kNever);
}

}  // namespace
}  // namespace uroce::engine::test

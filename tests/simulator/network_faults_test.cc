// Faults 34 to 38 of faults.md: cables that are dead for a while or for ever, links that flap, peers that die, come
// back or stand still, and congestion. Everybody who can complete does, with exact data; the others get an error within
// the time that their retry budget says.
#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/simulator/network.h"
#include "tests/simulator/scenario.h"
#include "tests/simulator/traffic.h"

namespace uroce::simulator {
namespace {

using queue::WcStatus;
using queue::WrOpcode;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::TestWithParam;
using transport::LossRecovery;
using transport::QpState;

transport::QpAttributes patience(uint8_t timeout, uint8_t retry_count) {
  auto attributes = Network::default_attributes();
  attributes.timeout = timeout;
  attributes.retry_count = retry_count;
  return attributes;
}

queue::SendWqe work(WrOpcode opcode, uint64_t wr_id, uint64_t address = 0, uint32_t rkey = 0) {
  queue::SendWqe wqe{};
  wqe.wr_id = wr_id;
  wqe.opcode = opcode;
  wqe.flags = queue::kSignaled;
  wqe.remote_address = address;
  wqe.rkey = rkey;
  return wqe;
}

// All traffics of a network, stepped after every event or now and then.
class Traffics {
 public:
  explicit Traffics(Network& network) : network_(network) {}

  Traffic& add(Host& from_host, SimQp& from, Host& to_host, SimQp& to, const TrafficConfig& config,
               uint32_t path_mtu = 1024) {
    return *all_.emplace_back(
        std::make_unique<Traffic>(from_host, from, to_host, to, network_.random, config, path_mtu));
  }
  void both_ways(Pair& pair, const TrafficConfig& config) {
    add(pair.host_a, pair.a, pair.host_b, pair.b, config);
    add(pair.host_b, pair.b, pair.host_a, pair.a, config);
  }

  bool step() {
    bool done = true;
    for (const auto& traffic : all_) {
      traffic->step();
      if (traffic->failed()) return true;
      done = done && traffic->done();
    }
    return done;
  }
  bool run(Duration limit) {
    return network_.events.run_until([this] { return step(); }, limit);
  }
  // Applications that look only this often: the work lasts, however fast the network is.
  bool run_slowly(Duration pace, Duration limit) {
    const Time end = network_.events.now() + limit;
    while (!step()) {
      if (network_.events.now() > end) return false;
      network_.events.run_for(pace);
    }
    return true;
  }

  // Late packets do no harm, whatever is left is flushed, and the oracles have nothing to say.
  void expect_exact() {
    network_.events.run_for(seconds(1));
    for (const auto& host : network_.hosts) {
      for (const auto& qp : host->qps()) qp->modify(QpState::kErr);
    }
    for (const auto& traffic : all_) {
      traffic->finish();
      EXPECT_EQ(traffic->error(), "");
    }
    EXPECT_EQ(network_.judge.finish(), "");
  }

 private:
  Network& network_;
  std::vector<std::unique_ptr<Traffic>> all_;
};

void set_down(Pair& pair, bool down) {
  pair.forward.down = pair.backward.down = down;
}

// --- a peer far slower than its timer would have it ------------------------------------------------------------------

// Round trips of tens of milliseconds, of packets that wait to be looked at. What is sent again meanwhile has to be
// looked at as well, so it must be little.
TEST(SlowPeer, IsNotFlooded) {
  struct Work {
    WrOpcode kind;
    uint32_t size;
  };
  for (const auto& [kind, size] :
       {Work{WrOpcode::kSend, 1000}, Work{WrOpcode::kRdmaWrite, 65536}, Work{WrOpcode::kRdmaWriteWithImmediate, 5000},
        Work{WrOpcode::kRdmaRead, 1000}, Work{WrOpcode::kRdmaRead, 65536}, Work{WrOpcode::kFetchAdd, 8}}) {
    SCOPED_TRACE("work " + std::to_string(static_cast<int>(kind)) + " of " + std::to_string(size) + " bytes");
    Scenario slow;
    slow.link = {.bits_per_second = 20e6, .queue_frames = 4096};
    slow.attributes = patience(18, 7);
    slow.both_directions = false;
    slow.traffic = {.kinds = {kind},
                    .messages = static_cast<int>(20'000'000 / (size + 10'000)),
                    .max_size = size,
                    .fixed_size = true,
                    .all_signaled = true};
    const Outcome outcome = run(slow, 1);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.timeouts, 0u);
    EXPECT_LE(20 * outcome.retransmissions, outcome.frames) << "5 %";
    EXPECT_GE(outcome.gigabits_per_second(), kind == WrOpcode::kFetchAdd ? 0.0014 : 0.018)
        << "of 0.020; headers left out";
  }
}

// --- fault 34: blackhole ---------------------------------------------------------------------------------------------

TEST(Blackhole, TwoSecondsAreSurvivedWithABudgetForThem) {
  Pair pair(1);
  constexpr uint8_t kTimeout = 17;  // 0.54 s, 4.3 s in all
  pair.connect(patience(kTimeout, 7));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60});
  pair.events.after(microseconds(300), [&] { set_down(pair, true); });
  pair.events.after(seconds(2), [&] { set_down(pair, false); });
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run(seconds(10)));
  EXPECT_GT(pair.events.now() - start, seconds(2)) << "the work was over before the fault";
  // The probes are used up by then, so it is the next expiry that finds the cable alive.
  EXPECT_LT(pair.events.now() - start, seconds(2) + LossRecovery::transport_timeout(kTimeout) + milliseconds(20));
  traffics.expect_exact();
}

// The first one fails when the timer has expired retry_cnt times and once more, and takes the others with it.
TEST(Blackhole, ForEverEndsWhenTheBudgetIsSpent) {
  struct Budget {
    uint8_t timeout, retry_count;
  };
  for (const auto& [timeout, retries] : {Budget{14, 7}, Budget{12, 0}, Budget{8, 3}, Budget{18, 1}}) {
    for (const WrOpcode first : {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd}) {
      SCOPED_TRACE("timeout " + std::to_string(timeout) + ", retries " + std::to_string(retries) + ", work " +
                   std::to_string(static_cast<int>(first)));
      Pair pair(1);
      pair.connect(patience(timeout, retries));
      set_down(pair, true);
      alignas(8) uint8_t buffer[8];
      const uint32_t key = pair.host_a.register_memory(buffer, sizeof(buffer), memory::kLocalWrite);
      const queue::Sge sge{reinterpret_cast<uint64_t>(buffer), sizeof(buffer), key};
      const Time start = pair.events.now();
      ASSERT_TRUE(pair.a.post(work(first, 1), {sge}));
      for (uint64_t id = 2; id <= 5; ++id) {
        queue::SendWqe wqe = work(WrOpcode::kSend, id);
        wqe.flags = 0;  // errors are told of all the same
        ASSERT_TRUE(pair.a.post(wqe, {}));
      }
      ASSERT_TRUE(pair.b.post_receive(9));
      ASSERT_TRUE(pair.a.post_receive(7));
      ASSERT_TRUE(pair.events.run_until([&] { return !pair.a.send_cq.empty(); }, minutes(1)));
      const Duration taken = pair.events.now() - start;
      const Duration budget = (retries + 1) * LossRecovery::transport_timeout(timeout);
      EXPECT_GE(taken, budget);
      EXPECT_LE(taken, budget + microseconds(20)) << "later than the budget and the rounds of the engine";
      for (uint64_t id = 1; id <= 5; ++id) {
        const auto cqe = pair.a.poll(pair.a.send_cq);
        ASSERT_TRUE(cqe);
        EXPECT_EQ(cqe->wr_id, id);
        EXPECT_EQ(cqe->status, id == 1 ? WcStatus::kRetryExceeded : WcStatus::kFlushError);
      }
      const auto receive = pair.a.poll(pair.a.recv_cq);
      ASSERT_TRUE(receive);
      EXPECT_EQ(receive->wr_id, 7u);
      EXPECT_EQ(receive->status, WcStatus::kFlushError);
      EXPECT_EQ(pair.a.rc.state(), QpState::kErr);
      EXPECT_EQ(pair.host_a.counters.get(Counter::kTimeouts), retries + 1u);
      EXPECT_EQ(pair.judge.finish(), "");
    }
  }
}

// Timeout 0: waits for ever, and in silence once the probes are used up.
TEST(Blackhole, TimeoutZeroWaitsForEver) {
  Pair pair(1);
  pair.connect(patience(0, 1));
  set_down(pair, true);
  ASSERT_TRUE(pair.b.post_receive(1));
  ASSERT_TRUE(pair.b.post_receive(2));
  ASSERT_TRUE(pair.a.post(work(WrOpcode::kSend, 1), {}));
  pair.events.run_for(seconds(1));
  EXPECT_EQ(pair.host_a.counters.get(Counter::kProbes), static_cast<uint64_t>(LossRecovery::kMaxProbes));
  const uint64_t sent = pair.forward.counters.sent;
  EXPECT_LE(sent, LossRecovery::kMaxProbes + 1u);
  pair.events.run_for(std::chrono::hours(1));
  EXPECT_EQ(pair.forward.counters.sent, sent);
  EXPECT_EQ(pair.a.rc.deadline(), kNever);
  EXPECT_FALSE(pair.a.poll(pair.a.send_cq));
  // The next request shows the peer the gap.
  set_down(pair, false);
  ASSERT_TRUE(pair.a.post(work(WrOpcode::kSend, 2), {}));
  pair.events.run_for(milliseconds(1));
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto cqe = pair.a.poll(pair.a.send_cq);
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->wr_id, id);
    EXPECT_EQ(cqe->status, WcStatus::kSuccess);
  }
  EXPECT_EQ(pair.judge.finish(), "");
}

// --- fault 35: flaps -------------------------------------------------------------------------------------------------

// Each direction goes down and up by itself, for as long as there is work.
class Flapping {
 public:
  Flapping(Pair& pair, Duration longest_up, Duration longest_down)
      : pair_(pair), longest_up_(longest_up), longest_down_(longest_down) {
    flap(pair.forward);
    flap(pair.backward);
  }
  int count() const { return count_; }
  void stop() { stopped_ = true; }

 private:
  void flap(Link& link) {
    link.down = !stopped_ && !link.down;
    ++count_;
    const Duration longest = link.down ? longest_down_ : longest_up_;
    if (stopped_) return;
    pair_.events.after(Duration(static_cast<int64_t>(pair_.random() % static_cast<uint64_t>(longest.count()))),
                       [this, &link] { flap(link); });
  }

  Pair& pair_;
  const Duration longest_up_, longest_down_;
  int count_ = 0;
  bool stopped_ = false;
};

class LinkFlap : public TestWithParam<uint64_t> {};

TEST_P(LinkFlap, AMinuteOfMixedTraffic) {
  Pair pair(GetParam());
  pair.connect(patience(16, 7));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 4000, .under_way = 4, .max_size = 12000});
  Flapping flapping(pair, milliseconds(100), milliseconds(40));
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run_slowly(milliseconds(60), minutes(10)));
  EXPECT_GT(pair.events.now() - start, minutes(1));
  EXPECT_GT(flapping.count(), 1000);
  flapping.stop();
  pair.events.run_for(milliseconds(100));
  traffics.expect_exact();
}

INSTANTIATE_TEST_SUITE_P(Seeds, LinkFlap, testing::Values(1, 2, 3));

TEST(Soak, MinutesOfFlapsLossReorderDuplicatesAndCorruption) {
  LinkConfig link;
  link.drop = 0.01;
  link.duplicate = 0.005;
  link.reorder = 0.01;
  link.corrupt = 0.001;
  Pair pair(5, link);
  pair.connect(patience(16, 7));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 6000, .under_way = 4, .max_size = 12000, .receive_lag = milliseconds(2)});
  Flapping flapping(pair, seconds(1), milliseconds(60));
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run_slowly(milliseconds(200), minutes(30)));
  EXPECT_GT(pair.events.now() - start, minutes(5));
  flapping.stop();
  pair.events.run_for(milliseconds(200));
  traffics.expect_exact();
}

// --- fault 36: the peer dies -----------------------------------------------------------------------------------------

struct Deadly : Pair {
  Deadly() : Pair(1), target(size_t{1} << 20, 0x22), source(target.size(), 0x11) {
    attributes = patience(12, 3);  // 67 ms in all
    connect(attributes, kOldPsn, kPeerPsn);
    key = host_b.register_memory(target.data(), target.size(), memory::kLocalWrite | memory::kRemoteWrite);
    local_key = host_a.register_memory(source.data(), source.size(), memory::kLocalWrite);
  }
  // A WRITE of everything, a SEND and another WRITE behind it; runs until a part has arrived.
  void write_half() {
    const auto size = static_cast<uint32_t>(source.size());
    const queue::Sge sge{reinterpret_cast<uint64_t>(source.data()), size, local_key};
    const auto address = reinterpret_cast<uint64_t>(target.data());
    ASSERT_TRUE(a.post(work(WrOpcode::kRdmaWrite, 1, address, key), {sge}));
    ASSERT_TRUE(a.post(work(WrOpcode::kSend, 2), {}));
    ASSERT_TRUE(a.post(work(WrOpcode::kRdmaWrite, 3, address, key), {sge}));
    events.run_for(microseconds(400));
    ASSERT_EQ(target[size / 8], 0x11);
    ASSERT_EQ(target[size - 1], 0x22);
  }
  // The process is gone: no QP has the number any more.
  void kill() {
    ASSERT_EQ(b.modify(QpState::kReset), 0);
    died = events.now();
    left_behind = target;
  }
  // Another process got the number, in the worst case towards the same QP, and the same memory is registered.
  void be_reborn(uint32_t expected_psn) {
    attributes.sq_psn = wire::Psn(0x654321);
    attributes.rq_psn = wire::Psn(expected_psn);
    judge.declare(host_b, b, host_a.address(), a.rc.qpn(), attributes);
    ASSERT_TRUE(b.connect(host_a.address(), a.rc.qpn().value(), attributes));
    for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(b.post_receive(id));
  }
  void expect_failure_in_time() {
    ASSERT_TRUE(events.run_until([this] { return !a.send_cq.empty(); }, minutes(1)));
    // The last sign of the peer may be a round trip old when it dies, and is a transport timeout old at the first
    // expiry.
    const Duration budget = (attributes.retry_count + 1) * LossRecovery::transport_timeout(attributes.timeout);
    EXPECT_LE(events.now() - died, budget + milliseconds(1));
    for (uint64_t id = 1; id <= 3; ++id) {
      const auto cqe = a.poll(a.send_cq);
      ASSERT_TRUE(cqe);
      EXPECT_EQ(cqe->wr_id, id);
      EXPECT_EQ(cqe->status, id == 1 ? WcStatus::kRetryExceeded : WcStatus::kFlushError);
    }
  }

  static constexpr uint32_t kOldPsn = 0x111111;
  static constexpr uint32_t kPeerPsn = 0x222222;
  transport::QpAttributes attributes;
  std::vector<uint8_t> target, source, left_behind;
  uint32_t key = 0, local_key = 0;
  Time died{};
};

TEST(PeerDies, InTheMiddleOfAWriteIsRetryExceeded) {
  Deadly pair;
  pair.write_half();
  pair.kill();
  pair.expect_failure_in_time();
  EXPECT_EQ(pair.target, pair.left_behind);
  EXPECT_EQ(pair.judge.finish(), "");
}

// Old packets look like packets of the past or of the future to the new connection, never like the next one.
TEST(PeerDies, TheRebornQpExecutesNothingOfTheOldConnection) {
  for (const uint32_t expected : {0x900000u, 0x050000u, 0x111111u + 0x2000, 0x111110u}) {
    SCOPED_TRACE(expected);
    Deadly pair;
    pair.write_half();
    pair.kill();
    pair.events.run_for(microseconds(500));
    pair.be_reborn(expected);
    const uint64_t requests = pair.host_b.counters.get(Counter::kRxRequests);
    pair.expect_failure_in_time();
    EXPECT_GT(pair.host_b.counters.get(Counter::kRxRequests), requests) << "nothing old reached it";
    EXPECT_EQ(pair.target, pair.left_behind);
    EXPECT_FALSE(pair.b.poll(pair.b.recv_cq));
    EXPECT_EQ(pair.b.rc.state(), QpState::kRts);
    EXPECT_EQ(pair.judge.finish(), "");
  }
}

// --- fault 38: a host stands still -----------------------------------------------------------------------------------

void thaw(Host& host) {
  host.frozen = false;
  host.wake();
}

TEST(FrozenHost, AMinuteIsSurvivedWithABudgetForIt) {
  Pair pair(1);
  constexpr uint8_t kTimeout = 22;  // 17 s, 137 s in all
  pair.connect(patience(kTimeout, 7));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60});
  pair.events.after(microseconds(300), [&] { pair.host_b.frozen = true; });
  pair.events.after(minutes(1), [&] { thaw(pair.host_b); });
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run(minutes(5)));
  EXPECT_GT(pair.events.now() - start, minutes(1)) << "the work was over before the fault";
  EXPECT_LT(pair.events.now() - start, minutes(1) + LossRecovery::transport_timeout(kTimeout) + milliseconds(20));
  traffics.expect_exact();
}

// The peer has given up meanwhile; the host that was stopped finds that out by its own budget.
TEST(FrozenHost, ComesBackToAConnectionThatIsOver) {
  struct Unequal : Pair {
    Unequal() : Pair(1) {
      connect_one(host_a, a, host_b, b, Network::default_attributes(), 0x111111, 0x222222);
      connect_one(host_b, b, host_a, a, patience(22, 7), 0x222222, 0x111111);
    }
  } pair;
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60, .errors_allowed = true});
  pair.events.after(microseconds(300), [&] { pair.host_b.frozen = true; });
  pair.events.after(minutes(1), [&] { thaw(pair.host_b); });
  ASSERT_TRUE(traffics.run(minutes(10)));
  EXPECT_EQ(pair.a.rc.state(), QpState::kErr);
  EXPECT_EQ(pair.b.rc.state(), QpState::kErr);
  traffics.expect_exact();
}

TEST(FrozenHost, NeighboursAreUnharmed) {
  Network network(1);
  network.join_star(3, {}, {});
  Host& server = *network.hosts[0];
  Host& frozen = *network.hosts[1];
  Host& neighbour = *network.hosts[2];
  const auto to_frozen = network.connect(server, frozen, patience(22, 7), 0x111111, 0x222222);
  const auto to_neighbour = network.connect(server, neighbour, Network::default_attributes(), 0x333333, 0x444444);
  Traffics stuck(network), lively(network);
  stuck.add(server, to_frozen.a, frozen, to_frozen.b, {.messages = 60});
  stuck.add(frozen, to_frozen.b, server, to_frozen.a, {.messages = 60});
  network.events.run_until(
      [&, until = network.events.now() + microseconds(300)] { return stuck.step() || network.events.now() > until; },
      seconds(1));
  frozen.frozen = true;
  lively.add(server, to_neighbour.a, neighbour, to_neighbour.b, {.messages = 200});
  lively.add(neighbour, to_neighbour.b, server, to_neighbour.a, {.messages = 200});
  ASSERT_TRUE(lively.run(seconds(1))) << "slowed down by a host that stands still";
  EXPECT_EQ(neighbour.counters.get(Counter::kTxRetransmissions), 0u);
  network.events.run_for(minutes(1));
  EXPECT_FALSE(stuck.step());
  thaw(frozen);
  EXPECT_TRUE(stuck.run(minutes(1)));
  stuck.expect_exact();
}

// --- congestion ------------------------------------------------------------------------------------------------------

struct Incast {
  uint64_t lost = 0, marked = 0, cnps = 0;
  Duration time{};
  double slowest_share = 0;  // of what the fastest sender had done when it was ready
};

// `senders` hosts write to one through a switch whose port to it holds 128 frames.
Incast incast(int senders, uint32_t mark_from, uint64_t seed) {
  Network network(seed);
  network.join_star(senders + 1, {}, {});
  Host& sink = *network.hosts[0];
  LinkConfig narrow;
  narrow.queue_frames = 128;
  narrow.mark_from = mark_from;
  narrow.mark_all_from = mark_from * 2;
  Link& port = network.fabric->add_port(sink.address(), narrow);
  port.connect([&sink](Frame frame) { sink.receive(std::move(frame)); });

  constexpr int kMessages = 100;
  const TrafficConfig config{
      .kinds = {WrOpcode::kRdmaWrite}, .messages = kMessages, .under_way = 4, .max_size = 100'000, .fixed_size = true};
  Traffics traffics(network);
  std::vector<Traffic*> each;
  for (int i = 1; i <= senders; ++i) {
    Host& from = *network.hosts[static_cast<size_t>(i)];
    const auto c = network.connect(from, sink, Network::default_attributes(), 0x111111u * static_cast<uint32_t>(i), 1);
    each.push_back(&traffics.add(from, c.a, sink, c.b, config));
  }
  const auto slowest = [&each] {
    int least = kMessages;
    for (const Traffic* traffic : each) least = std::min(least, traffic->completed());
    return least;
  };
  Incast result;
  const Time start = network.events.now();
  EXPECT_TRUE(network.events.run_until(
      [&] {
        const bool done = traffics.step();
        const bool any = std::any_of(each.begin(), each.end(), [](const Traffic* t) { return t->done(); });
        if (any && result.slowest_share == 0) result.slowest_share = (slowest() + 0.5) / kMessages;
        return done;
      },
      seconds(60)));
  result.time = network.events.now() - start;
  result.lost = port.counters.overflowed;
  result.marked = port.counters.marked;
  result.cnps = sink.counters.get(Counter::kTxCnps);
  traffics.expect_exact();
  return result;
}

// DCQCN takes some milliseconds to find the rates (the firmware's parameters begin from above); from then on nothing is
// lost, while without marks go-back-N loses a third of the frames for ever.
// One run says little: the losses with marks are a half to a quarter of those without, as the seed will have it.
TEST(CongestedNetwork, IncastWithMarkingLosesFarLess) {
  uint64_t lost = 0, lost_without = 0;
  Duration time{}, time_without{};
  for (const uint64_t seed : {1, 2, 3}) {
    const Incast plain = incast(4, 0, seed);
    EXPECT_EQ(plain.marked, 0u);
    EXPECT_EQ(plain.cnps, 0u);
    const Incast marked = incast(4, 8, seed);
    EXPECT_GT(marked.cnps, 0u);
    EXPECT_LE(marked.cnps, marked.marked);
    EXPECT_GT(marked.slowest_share, 0.25);
    lost += marked.lost;
    lost_without += plain.lost;
    time += marked.time;
    time_without += plain.time;
  }
  EXPECT_LT(2 * lost, lost_without);
  EXPECT_LE(time, time_without);
}

// The rate goes down, but neither the connection nor the retry budget suffers, CNPs are few, and afterwards the line is
// full again.
TEST(CongestedNetwork, FiveSecondsOfMarksOnEveryPacket) {
  Pair pair(1);
  auto attributes = Network::default_attributes();
  attributes.path_mtu = 4096;
  pair.connect(attributes);
  constexpr int kMessages = 4000;
  constexpr uint32_t kSize = 100'000;
  const TrafficConfig config{.kinds = {WrOpcode::kRdmaWrite, WrOpcode::kSend, WrOpcode::kRdmaRead},
                             .messages = kMessages,
                             .under_way = 8,
                             .max_size = kSize,
                             .fixed_size = true};
  Traffics traffics(pair);
  Traffic& traffic = traffics.add(pair.host_a, pair.a, pair.host_b, pair.b, config, attributes.path_mtu);
  LinkConfig& forward = pair.forward.config;
  LinkConfig& backward = pair.backward.config;
  const auto rate = [&traffic](int messages, Duration time) {
    return static_cast<double>(traffic.completed() - messages) * 8 * kSize / static_cast<double>(time.count());
  };

  forward.mark_all_from = backward.mark_all_from = 1;
  ASSERT_FALSE(traffics.run(seconds(5))) << "not slowed down";
  EXPECT_LT(rate(0, seconds(5)), 1.0) << "Gbit/s under marks";
  EXPECT_GT(traffic.completed(), 100);
  EXPECT_EQ(pair.host_a.counters.get(Counter::kTimeouts), 0u);
  const uint64_t cnps = pair.host_a.counters.get(Counter::kTxCnps) + pair.host_b.counters.get(Counter::kTxCnps);
  EXPECT_LE(cnps, pair.forward.counters.marked + pair.backward.counters.marked);

  forward.mark_all_from = backward.mark_all_from = 0;
  pair.events.run_until([&] { return traffics.step(); }, milliseconds(100));  // to get going
  const int before = traffic.completed();
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run(seconds(5)));
  EXPECT_GT(rate(before, pair.events.now() - start), 5.0) << "Gbit/s of 10 each way, after the marks";
  traffics.expect_exact();
}

}  // namespace
}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// Hosts that stand still for a while: a process that was stopped, a virtual machine that moves from one computer to
// another. The peer waits as long as its attributes allow; who stood still spends none of its own retries.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/simulator/traffics.h"

namespace uroce::simulator {
namespace {

using queue::WcStatus;
using queue::WrOpcode;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using transport::LossRecovery;
using transport::ProbeBudget;
using transport::QpState;

// The host takes and sends nothing from `at` on, for `time`; what comes meanwhile is lost.
void stop_for(Host& host, Duration at, Duration time) {
  host.events.after(at, [&host] { host.frozen = true; });
  host.events.after(at + time, [&host] {
    host.frozen = false;
    host.wake();
  });
}

// How long a peer may be away: all expiries of the retransmission timer, each after the longest time that
// IBTA 9.7.6.1.3 allows.
Duration longest_downtime(uint8_t timeout, uint8_t retry_count) {
  return (retry_count + 1) * 4 * LossRecovery::transport_timeout(timeout);
}

// --- the peer stands still -------------------------------------------------------------------------------------------

// perftest's defaults: timeout 14, 7 retries. What failed once: the budget was spent at its fastest, in 0.54 s.
TEST(PeerIsAway, HalfASecondAndMoreIsSurvivedWithUsualAttributes) {
  for (const Duration away : {milliseconds(50), milliseconds(500), milliseconds(2000)}) {
    SCOPED_TRACE(away.count());
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      Pair pair(seed);
      pair.connect(patience(14, 7));
      Traffics traffics(pair);
      traffics.both_ways(pair, {.messages = 60});
      const Time start = pair.events.now();
      stop_for(pair.host_b, microseconds(300), away);
      ASSERT_TRUE(traffics.run(seconds(20)));
      EXPECT_GT(pair.events.now() - start, away) << "the work was over before the fault";
      EXPECT_LT(pair.events.now() - start, 3 * away / 2 + milliseconds(40)) << "the waits of probes double at most";
      traffics.expect_exact();
    }
  }
}

// The table of docs/migration.md, by what happens: a little less than it says is survived, a little more is not.
TEST(PeerIsAway, AsLongAsTheTableSaysAndNotLonger) {
  for (const uint8_t timeout : {8, 10, 12, 14, 16, 18, 20}) {
    for (const uint8_t retries : {0, 1, 3, 7}) {
      for (const bool too_long : {false, true}) {
        SCOPED_TRACE(std::to_string(timeout) + ", " + std::to_string(retries) + (too_long ? ", too long" : ""));
        Pair pair(1);
        pair.connect(patience(timeout, retries));
        ASSERT_TRUE(pair.b.post_receive(1));
        const Duration longest = longest_downtime(timeout, retries);
        // Nothing is in flight when the peer goes, so the first packet is as old as its absence. It is back before the
        // last probe, which comes a second before the end at the latest.
        stop_for(pair.host_b, Duration{}, too_long ? longest + milliseconds(1) : longest / 3);
        pair.events.run_for(microseconds(1));
        const Time start = pair.events.now();
        ASSERT_TRUE(pair.a.post(work(WrOpcode::kSend, 1), {}));
        ASSERT_TRUE(pair.events.run_until([&] { return !pair.a.send_cq.empty(); }, minutes(30)));
        EXPECT_EQ(pair.a.poll(pair.a.send_cq)->status, too_long ? WcStatus::kRetryExceeded : WcStatus::kSuccess);
        if (too_long) {
          EXPECT_GE(pair.events.now() - start, longest);
        }
        EXPECT_EQ(pair.judge.finish(), "");
      }
    }
  }
}

// The figures of docs/migration.md.
TEST(PeerIsAway, TheTableOfTheDocumentation) {
  const auto rounded = [](uint8_t timeout, uint8_t retries) {
    return static_cast<int64_t>(longest_downtime(timeout, retries) / milliseconds(1));
  };
  EXPECT_EQ(rounded(10, 7), 134);
  EXPECT_EQ(rounded(12, 7), 536);
  EXPECT_EQ(rounded(14, 3), 1073);
  EXPECT_EQ(rounded(14, 7), 2147);
  EXPECT_EQ(rounded(16, 7), 8589);
  EXPECT_EQ(rounded(17, 7), 17179);
  EXPECT_EQ(rounded(18, 7), 34359);
  EXPECT_EQ(rounded(19, 7), 68719);
  EXPECT_EQ(rounded(20, 7), 137438);
}

// --- this host stands still ------------------------------------------------------------------------------------------

// The requester itself was stopped. That a response was lost meanwhile may cost a retry, as ever; the time does not.
TEST(OwnPause, AMinuteSpendsNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.connect(patience(12, 1));
    Traffics traffics(pair);
    traffics.add(pair.host_a, pair.a, pair.host_b, pair.b, {.messages = 60});
    stop_for(pair.host_a, microseconds(150), minutes(1));
    const Time start = pair.events.now();
    ASSERT_TRUE(traffics.run(minutes(5)));
    EXPECT_GT(pair.events.now() - start, minutes(1)) << "the work was over before the fault";
    EXPECT_EQ(pair.host_a.counters.get(Counter::kTimeouts), 0u);
    EXPECT_EQ(pair.a.rc.state(), QpState::kRts);
    traffics.expect_exact();
  }
}

// Both: computers whose lids were shut.
// A gap that a NAK reports costs a retry, as ever.
TEST(OwnPause, OfBothSidesLetsNoTimerExpire) {
  Pair pair(1);
  pair.connect(patience(12, 1));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60});
  for (Host* host : {&pair.host_a, &pair.host_b}) stop_for(*host, microseconds(300), minutes(1));
  ASSERT_TRUE(traffics.run(minutes(5)));
  for (Host* host : {&pair.host_a, &pair.host_b}) EXPECT_EQ(host->counters.get(Counter::kTimeouts), 0u);
  traffics.expect_exact();
}

// What many QPs have in flight does not leave again at once: probes do, within the budget of their destination.
TEST(OwnPause, FiresNoBundleOfTimeouts) {
  constexpr int kQps = 300;
  constexpr uint64_t kMessages = 8;
  Network network(1);
  network.join_pair({.queue_frames = 8 * kQps}, {.queue_frames = 8 * kQps});
  Host &a = *network.hosts[0], &b = *network.hosts[1];
  std::vector<Network::Connection> all;
  for (int i = 0; i < kQps; ++i) {
    all.push_back(network.connect(a, b, patience(10, 1), 100, 200, {.depth = 16, .cq_capacity = 16},
                                  {.depth = 16, .cq_capacity = 16}));
  }
  for (const auto& connection : all) {
    for (uint64_t id = 0; id < kMessages; ++id) {
      ASSERT_TRUE(connection.b.post_receive(id));
      ASSERT_TRUE(connection.a.post(work(WrOpcode::kSend, id), {}));
    }
  }
  Link& backward = *network.links[1];
  backward.down = true;  // the answers are lost
  network.events.run_for(microseconds(900));
  a.frozen = true;
  network.events.run_for(seconds(30));
  backward.down = false;
  const uint64_t before = network.links[0]->counters.sent;
  a.frozen = false;
  a.wake();
  network.events.run_for(microseconds(100));
  EXPECT_LE(network.links[0]->counters.sent - before, 2u * (ProbeBudget::kBurst + 100 / 25 + 1));
  size_t done = 0;
  const auto finished = [&] {
    for (const auto& connection : all) {
      while (const auto cqe = connection.a.poll(connection.a.send_cq)) done += cqe->status == WcStatus::kSuccess;
    }
    return done == kQps * kMessages;
  };
  EXPECT_TRUE(network.events.run_until(finished, seconds(10)));
  EXPECT_EQ(a.counters.get(Counter::kTimeouts), 0u);
  EXPECT_EQ(a.counters.get(Counter::kOwnPauses), uint64_t{kQps});
  EXPECT_EQ(network.judge.finish(), "");
}

// A host that runs for a moment only, again and again, gives a dead peer up all the same.
TEST(OwnPause, AHostThatIsAlwaysLateGivesUpAllTheSame) {
  Pair pair(1);
  pair.connect(patience(14, 7));
  pair.forward.down = true;
  pair.host_a.frozen = true;
  ASSERT_TRUE(pair.a.post(work(WrOpcode::kSend, 1), {}));
  int turns = 0;
  for (; pair.a.send_cq.empty() && turns < 1000; ++turns) {
    pair.events.run_for(milliseconds(100));
    pair.host_a.frozen = false;
    pair.host_a.wake();
    pair.events.run_for(microseconds(10));
    pair.host_a.frozen = true;
  }
  ASSERT_LT(turns, 1000);
  EXPECT_EQ(pair.a.poll(pair.a.send_cq)->status, WcStatus::kRetryExceeded);
  EXPECT_GT(pair.host_a.counters.get(Counter::kOwnPauses), 0u);
}

}  // namespace
}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// Faults 36 and 38 of faults.md, and a peer that is slow: it dies, comes back, stands still. Nobody else suffers, and
// its peers complete with exact data or get an error within the time that their retry budget says.
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/simulator/scenario.h"
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
using transport::QpState;

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

// --- fault 36: the peer dies -----------------------------------------------------------------------------------------

struct Deadly : Pair {
  Deadly() : Pair(1), target(size_t{1} << 20, 0x22), source(target.size(), 0x11) {
    attributes = patience(12, 3);  // 268 ms in all
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
    const Duration budget = (attributes.retry_count + 1) * 4 * LossRecovery::transport_timeout(attributes.timeout);
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
  constexpr uint8_t kTimeout = 20;  // 4.3 s, 137 s in all
  pair.connect(patience(kTimeout, 7));
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60});
  pair.events.after(microseconds(300), [&] { pair.host_b.frozen = true; });
  pair.events.after(minutes(1), [&] { thaw(pair.host_b); });
  const Time start = pair.events.now();
  ASSERT_TRUE(traffics.run(minutes(5)));
  EXPECT_GT(pair.events.now() - start, minutes(1)) << "the work was over before the fault";
  EXPECT_LT(pair.events.now() - start, minutes(1) + LossRecovery::kMaxSlowProbe + milliseconds(20));
  traffics.expect_exact();
}

// The peer has given up meanwhile; the host that was stopped finds that out by its own budget.
TEST(FrozenHost, ComesBackToAConnectionThatIsOver) {
  struct Unequal : Pair {
    Unequal() : Pair(1) {
      connect_one(host_a, a, host_b, b, Network::default_attributes(), 0x111111, 0x222222);
      connect_one(host_b, b, host_a, a, patience(20, 7), 0x222222, 0x111111);
    }
  } pair;
  Traffics traffics(pair);
  traffics.both_ways(pair, {.messages = 60, .errors_allowed = true});
  pair.events.after(microseconds(300), [&] { pair.host_b.frozen = true; });
  pair.events.after(minutes(1), [&] { thaw(pair.host_b); });
  ASSERT_TRUE(traffics.run(minutes(20)));
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

}  // namespace
}  // namespace uroce::simulator

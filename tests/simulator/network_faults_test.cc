// SPDX-License-Identifier: BSD-2-Clause
// Faults 34 and 35 of faults.md: cables that are dead for a while or for ever, links that flap. Everybody who can
// complete does, with exact data; the others get an error within the time that their retry budget says.
#include <gtest/gtest.h>

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
using testing::TestWithParam;
using transport::LossRecovery;
using transport::QpState;

void set_down(Pair& pair, bool down) {
  pair.forward.down = pair.backward.down = down;
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
  // By then there is a probe in each second.
  EXPECT_LT(pair.events.now() - start, seconds(2) + LossRecovery::kMaxSlowProbe + milliseconds(20));
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
      const Duration budget = (retries + 1) * 4 * LossRecovery::transport_timeout(timeout);
      EXPECT_GE(taken, budget);
      EXPECT_LE(taken, budget + microseconds(40)) << "later than the budget and the rounds of the engine";
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

// Timeout 0: waits for ever, with a probe of one packet in each second, and so notices when the cable is back.
TEST(Blackhole, TimeoutZeroWaitsForEver) {
  Pair pair(1);
  pair.connect(patience(0, 1));
  set_down(pair, true);
  ASSERT_TRUE(pair.b.post_receive(1));
  ASSERT_TRUE(pair.b.post_receive(2));
  ASSERT_TRUE(pair.a.post(work(WrOpcode::kSend, 1), {}));
  pair.events.run_for(seconds(2));
  EXPECT_GE(pair.host_a.counters.get(Counter::kProbes), static_cast<uint64_t>(LossRecovery::kMaxProbes));
  const uint64_t sent = pair.forward.counters.sent;
  EXPECT_LE(sent, LossRecovery::kMaxProbes + 6u);
  pair.events.run_for(std::chrono::hours(1));
  EXPECT_LE(pair.forward.counters.sent, sent + 3601);
  EXPECT_FALSE(pair.a.poll(pair.a.send_cq));
  set_down(pair, false);
  pair.events.run_for(LossRecovery::kMaxSlowProbe + milliseconds(1));
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

}  // namespace
}  // namespace uroce::simulator

#include "engine/transport/reliable/run_trial.h"

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace std::chrono_literals;
using namespace test;
using queue::WrOpcode;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// A transfer that crawls: each time it goes back it has come a packet further.
int times_until_pause(RunTrial& trial, Time now, uint32_t progress = 1) {
  int times = 1;
  while (times < 100 && !trial.on_went_back(progress, now)) ++times;
  return times;
}

TEST(RunTrial, RunsPauseWhenATransferCrawls) {
  for (const uint32_t progress : {0u, 1u, RunTrial::kStep}) {
    RunTrial trial;
    EXPECT_TRUE(trial.allowed(Time{}));
    EXPECT_EQ(times_until_pause(trial, Time{}, progress), RunTrial::kSteps);
    EXPECT_FALSE(trial.allowed(Time{}));
    EXPECT_FALSE(trial.allowed(Time{} + RunTrial::kFirstPause - 1ns));
    EXPECT_TRUE(trial.allowed(Time{} + RunTrial::kFirstPause));
  }
}

TEST(RunTrial, LossesOfATransferThatGetsOnDoNotCount) {
  RunTrial trial;
  EXPECT_EQ(times_until_pause(trial, Time{}, RunTrial::kStep + 1), 100);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(trial.on_went_back(i % RunTrial::kSteps == 0 ? 3 : 0, Time{}));
}

TEST(RunTrial, PausesDoubleUntilRunsWork) {
  RunTrial trial;
  Time now{};
  Duration pause = RunTrial::kFirstPause;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(times_until_pause(trial, now), RunTrial::kSteps);
    EXPECT_FALSE(trial.on_went_back(0, now)) << "it pauses already";
    now += pause;
    EXPECT_TRUE(trial.allowed(now));
    EXPECT_FALSE(trial.allowed(now - 1ns));
    pause = std::min<Duration>(2 * pause, RunTrial::kLongestPause);
    EXPECT_FALSE(trial.on_went_back(1000, now)) << "what got on while runs paused";
  }
  now += pause + 1ns;
  EXPECT_FALSE(trial.on_went_back(50, now));
  EXPECT_EQ(times_until_pause(trial, now), RunTrial::kSteps);
  EXPECT_TRUE(trial.allowed(now + RunTrial::kFirstPause));
}

// Each probe gets a packet through, and what follows it is lost.
TEST(RunTrial, HearsOfRequestsThatCrawl) {
  ScriptedQp host;
  host.to_rts();
  RunTrial trial;
  host.qp.share_runs(trial);
  for (uint64_t id = 0; id < 60; ++id) host.post(work(WrOpcode::kSend, id));
  host.pull();
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 20));
  host.pull();
  for (uint32_t i = 1; i <= RunTrial::kSteps; ++i) {
    EXPECT_TRUE(trial.allowed(host.now));
    host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 20 + i));
    EXPECT_THAT(host.pull(), Not(IsEmpty()));
  }
  EXPECT_FALSE(trial.allowed(host.now));
  EXPECT_EQ(host.count(Counter::kRunsPaused), 1u);
}

// A peer without receive requests takes one message after the other, and all runs to it arrive.
TEST(RunTrial, DoesNotCountWaitsForReceiveRequests) {
  ScriptedQp host;
  host.to_rts();
  RunTrial trial;
  host.qp.share_runs(trial);
  for (uint64_t id = 0; id < 60; ++id) host.post(work(WrOpcode::kSend, id));
  host.pull();
  for (uint32_t i = 0; i < 20; ++i) {
    host.receive(rnr_nak(kSqPsn + i, 1));
    host.expire();
    host.pull();
  }
  EXPECT_EQ(host.count(Counter::kRunsPaused), 0u);
  EXPECT_TRUE(trial.allowed(host.now));
}

// The peer gets no responses and asks for the same READs again.
TEST(RunTrial, HearsOfResponsesThatDoNotArrive) {
  for (const uint32_t reads : {1u, 4u}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8 * kMtu);
    host.to_rts();
    RunTrial trial;
    host.qp.share_runs(trial);
    int rounds = 0;
    while (trial.allowed(host.now) && ++rounds < 100) {
      for (uint32_t i = 0; i < reads; ++i) {
        host.receive(read_request(kRqPsn + 8 * i, buffer.iova, buffer.key, 8 * kMtu));
        EXPECT_THAT(host.drain(), SizeIs(8));
      }
    }
    EXPECT_LE(rounds, RunTrial::kSteps + 3) << reads << " READs";
    EXPECT_EQ(host.count(Counter::kRunsPaused), 1u);
  }
}

// Probes are what tells: the packets of one go alone.
TEST(RunTrial, PacketsOfAProbeLeaveAlone) {
  ScriptedQp host;
  host.to_rts();
  for (uint64_t id = 0; id < 5; ++id) host.post(work(WrOpcode::kSend, id));
  io::TxPacket packet;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(host.qp.pull(packet, host.now));
    EXPECT_FALSE(packet.alone);
  }
  host.expire();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(host.qp.pull(packet, host.now));
    EXPECT_EQ(packet.reason, io::SendReason::kProbe);
    EXPECT_TRUE(packet.alone);
  }
  EXPECT_FALSE(host.qp.pull(packet, host.now));
}

}  // namespace
}  // namespace uroce::transport

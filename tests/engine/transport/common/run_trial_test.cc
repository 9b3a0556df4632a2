// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/run_trial.h"

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace std::chrono_literals;
using namespace test;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr uint32_t kRun = 62;

// A QP whose packets leave in runs, under a congestion control that has no opinion.
class QpInRuns : public testing::Test {
 protected:
  QpInRuns() {
    host.qp.obey(&controller);
    host.to_rts();
    host.qp.share_runs(&trial, kRun);
  }

  congestion::Controller controller;
  RunTrial trial;
  ScriptedQp host;
};

// A transfer that crawls: each time it goes back it has come a packet further.
int times_until_pause(RunTrial& trial, Time now, uint32_t progress = 1) {
  int times = 1;
  while (times < 100 && !trial.on_went_back(progress, now)) ++times;
  return times;
}

// Of the packets that the QP has to send now, which leave alone.
std::vector<bool> alone(ScriptedQp& host) {
  std::vector<bool> alone;
  for (io::TxPacket packet; host.qp.pull(packet, host.now);) alone.push_back(packet.alone);
  return alone;
}

TEST(RunTrial, RunsPauseWhenATransferCrawls) {
  for (const uint32_t progress : {1u, RunTrial::kStep}) {
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
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(trial.on_went_back(i % RunTrial::kSteps == 0 ? 3 : 1, Time{}));
}

// What leaves alone does not arrive either.
TEST(RunTrial, LossesOfSinglePacketsDoNotCount) {
  RunTrial trial;
  EXPECT_EQ(times_until_pause(trial, Time{}, 0), 100);
  EXPECT_FALSE(trial.on_went_back(1, Time{}));
  EXPECT_FALSE(trial.on_went_back(0, Time{}));
  EXPECT_FALSE(trial.on_went_back(1, Time{}));
  EXPECT_TRUE(trial.on_went_back(1, Time{})) << "nor do they end a row";
}

TEST(RunTrial, RunsThatArrivedAMomentAgoDoNotPause) {
  RunTrial trial;
  Time now{1h};
  EXPECT_FALSE(trial.on_went_back(RunTrial::kStep + 1, now));
  now += RunTrial::kProven - 1ns;
  EXPECT_EQ(times_until_pause(trial, now), 100);
  EXPECT_EQ(times_until_pause(trial, now + 1ns), 1);
}

TEST(RunTrial, PausesDoubleUntilRunsWork) {
  RunTrial trial;
  Time now{};
  Duration pause = RunTrial::kFirstPause;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(times_until_pause(trial, now), RunTrial::kSteps);
    EXPECT_FALSE(trial.on_went_back(1, now)) << "it pauses already";
    now += pause;
    EXPECT_TRUE(trial.allowed(now));
    EXPECT_FALSE(trial.allowed(now - 1ns));
    pause = std::min<Duration>(2 * pause, RunTrial::kLongestPause);
    EXPECT_FALSE(trial.on_went_back(1000, now)) << "what got on while runs paused";
  }
  now += pause + 1ns;
  EXPECT_FALSE(trial.on_went_back(50, now));
  now += RunTrial::kProven;
  EXPECT_EQ(times_until_pause(trial, now), RunTrial::kSteps);
  EXPECT_TRUE(trial.allowed(now + RunTrial::kFirstPause));
}

TEST(RunTrial, WhatTheKernelRefusesIsAskedForAgainSoon) {
  RunTrial trial;
  trial.on_refused(Time{1h});
  EXPECT_FALSE(trial.allowed(Time{1h} + RunTrial::kRefused - 1ns));
  EXPECT_TRUE(trial.allowed(Time{1h} + RunTrial::kRefused));
  EXPECT_EQ(times_until_pause(trial, Time{2h}), RunTrial::kSteps) << "no step of a transfer that crawls";
}

// Each probe gets a packet through, and what follows it is lost.
TEST(RunTrial, HearsOfRequestsThatCrawl) {
  ScriptedQp host;
  host.to_rts();
  RunTrial trial;
  host.qp.share_runs(&trial, kRun);
  for (uint64_t id = 0; id < 60; ++id) host.post(work(WrOpcode::kSend, id));
  host.pull();
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 20));
  host.pull();
  host.now += RunTrial::kProven;
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
  host.qp.share_runs(&trial, kRun);
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

// The peer gets the first response of those that it asked for again, which leaves alone, and no other.
TEST(RunTrial, HearsOfResponsesThatDoNotArrive) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8 * kMtu);
  host.to_rts();
  RunTrial trial;
  host.qp.share_runs(&trial, kRun);
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 8 * kMtu));
  EXPECT_THAT(alone(host), ElementsAre(false, false, false, false, false, false, false, false));
  for (uint32_t n = 0; n <= RunTrial::kSteps; ++n) {
    EXPECT_TRUE(trial.allowed(host.now));
    host.receive(read_request(kRqPsn + n, buffer.iova + n * kMtu, buffer.key, (8 - n) * kMtu));
    std::vector<bool> expected(8 - n, false);
    expected[0] = true;
    EXPECT_EQ(alone(host), expected);
  }
  EXPECT_FALSE(trial.allowed(host.now));
  EXPECT_EQ(host.count(Counter::kRunsPaused), 1u);
}

// The first of the packets that are sent again tells whether single packets arrive, and asks for an answer.
TEST(RunTrial, TheOldestPacketLeavesAloneWhenItIsSentAgain) {
  for (const bool in_runs : {true, false}) {
    ScriptedQp host;
    host.to_rts();
    RunTrial trial;
    if (in_runs) host.qp.share_runs(&trial, kRun);
    for (uint64_t id = 0; id < 5; ++id) host.post(work(WrOpcode::kSend, id));
    EXPECT_THAT(alone(host), ElementsAre(false, false, false, false, false));
    host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 2));
    io::TxPacket packet;
    ASSERT_TRUE(host.qp.pull(packet, host.now));
    EXPECT_EQ(packet.alone, in_runs);
    if (in_runs) {
      EXPECT_TRUE(wire::BthView::at(packet.header.data()).ack_request());
    }
    EXPECT_THAT(alone(host), ElementsAre(false, false));
  }
}

// Which of them ask for an acknowledgement.
std::vector<uint32_t> asking(ScriptedQp& host) {
  std::vector<uint32_t> asking;
  io::TxPacket packet;
  for (uint32_t i = 0; host.qp.pull(packet, host.now); ++i) {
    if (wire::BthView::at(packet.header.data()).ack_request()) asking.push_back(i);
  }
  return asking;
}

// A loss makes the window no smaller: short runs would cost more than packets that are sent for nothing.
TEST(RunTrial, LossesDoNotShortenRuns) {
  for (const bool in_runs : {true, false}) {
    ScriptedQp host;
    congestion::Controller controller;
    host.qp.obey(&controller);
    host.to_rts();
    RunTrial trial;
    if (in_runs) host.qp.share_runs(&trial, kRun);
    host.post(work(WrOpcode::kSend, 0));
    host.pull();
    host.now += 10us;
    host.receive(ack(kSqPsn));  // a round trip of one packet
    for (uint64_t id = 1; id < 60; ++id) host.post(work(WrOpcode::kSend, id));
    EXPECT_THAT(host.drain(), SizeIs(59));
    host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 1));
    EXPECT_THAT(host.drain(), in_runs ? SizeIs(59) : SizeIs(16));
  }
}

// The peer's receive buffer may have been too small for the large window.
TEST_F(QpInRuns, HasTheUsualWindowAfterALossUntilManyPacketsHaveArrived) {
  const Buffer buffer = host.make_buffer(8192 * kMtu);
  host.post(work(WrOpcode::kSend, 0), {{buffer.iova, 8192 * kMtu, buffer.key}});
  EXPECT_THAT(host.drain(), SizeIs(4 * (kRun + 2)));
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 100));
  EXPECT_THAT(host.drain(), SizeIs(Requester::kWindow));
  uint32_t in_flight = Requester::kWindow;
  for (uint32_t acknowledged = 100; acknowledged < 100 + 4096; acknowledged += in_flight) {
    EXPECT_EQ(in_flight, Requester::kWindow);
    host.receive(ack(kSqPsn + acknowledged + in_flight - 1));
    in_flight = static_cast<uint32_t>(host.drain().size());
  }
  EXPECT_EQ(in_flight, 4 * (kRun + 2));
}

// A run is begun when there is room for all of it, or nothing is on its way that could make room.
TEST_F(QpInRuns, GoesOnWhenThereIsRoomForARun) {
  const Buffer buffer = host.make_buffer(1024 * kMtu);
  queue::SendWqe wqe = work(WrOpcode::kSend, 0);
  host.post(wqe, {{buffer.iova, 1024 * kMtu, buffer.key}});
  constexpr uint32_t kInFlight = 4 * (kRun + 2);
  EXPECT_THAT(host.drain(), SizeIs(kInFlight));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(ack(kSqPsn + kRun - 2));
  EXPECT_FALSE(host.qp.wants_to_send(host.now)) << "a packet is missing";
  host.receive(ack(kSqPsn + kRun - 1));
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.drain(), SizeIs(kRun));
}

// An answer is asked for with every second run, and where the window ends; after a loss as often as without runs.
TEST_F(QpInRuns, AsksTwiceInTheLongWindow) {
  const Buffer buffer = host.make_buffer(1024 * kMtu);
  host.post(work(WrOpcode::kSend, 0), {{buffer.iova, 1024 * kMtu, buffer.key}});
  constexpr uint32_t kInFlight = 4 * (kRun + 2);
  EXPECT_THAT(asking(host), ElementsAre(0, kInFlight / 2, kInFlight - 1));
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_THAT(asking(host), ElementsAre(0, 32, 64, 96, 127));
}

// With more of them in flight fewer would wait, and runs of them would be short.
TEST_F(QpInRuns, HasTheUsualWindowOfShortPackets) {
  for (uint32_t i = 0; i < Requester::kWindow + 10; ++i) host.post(work(WrOpcode::kSend, i));
  EXPECT_THAT(host.drain(), SizeIs(Requester::kWindow));
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

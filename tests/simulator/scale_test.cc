// SPDX-License-Identifier: BSD-2-Clause
// The short form of scale.cc: 64 of a hundred hosts write to one. All of them get their share of its link, nearly all
// of the link is used, nobody gives up.
#include <gtest/gtest.h>

#include "tests/simulator/scale_run.h"

namespace uroce::simulator {
namespace {

using congestion::Algorithm;
using std::chrono::milliseconds;

ScaleResult incast(bool ecn, Algorithm algorithm, uint32_t queue_frames, uint64_t seed) {
  ScaleConfig config;
  config.hosts = 100;
  config.ecn = ecn;
  config.algorithm = algorithm;
  config.queue_frames = queue_frames;
  config.warm_up = milliseconds(400);  // all begin within 100 us and lose nearly everything: that takes its time
  config.duration = milliseconds(200);
  config.seed = seed;
  return run(config);
}

TEST(Scale, IncastWithMarks) {
  for (const uint64_t seed : {1, 2}) {
    const ScaleResult result = incast(true, Algorithm::kAuto, 256, seed);
    EXPECT_GE(result.jain, 0.95) << "seed " << seed;
    EXPECT_GE(result.used(), 0.9) << "seed " << seed;
    EXPECT_EQ(result.failed_qps, 0u) << "seed " << seed;
  }
}

TEST(Scale, IncastWithoutMarks) {
  for (const uint32_t queue_frames : {128, 256, 1024}) {
    for (const uint64_t seed : {1, 2}) {
      const ScaleResult result = incast(false, Algorithm::kDelay, queue_frames, seed);
      EXPECT_GE(result.jain, 0.9) << "queue " << queue_frames << ", seed " << seed;
      EXPECT_GE(result.used(), 0.9) << "queue " << queue_frames << ", seed " << seed;
      EXPECT_EQ(result.failed_qps, 0u) << "queue " << queue_frames << ", seed " << seed;
    }
  }
}

// What the network has not the time to carry shows: without control most of the packets are lost.
TEST(Scale, IncastWithoutControlWastesTheLink) {
  const ScaleResult result = incast(false, Algorithm::kOff, 256, 1);
  EXPECT_LT(result.used(), 0.8);
  EXPECT_GT(result.queues[Fabric::kLeafToHost].dropped, result.message_times.size());
}

// Messages that come at random times, a part of them for few hosts: what is offered arrives, in the order of the time
// that their bytes take.
TEST(Scale, HotSpotsBelowTheirLimitSlowNobodyDown) {
  ScaleConfig config;
  config.pattern = Pattern::kHotSpot;
  config.hosts = config.senders = 100;
  config.load = 0.1;
  config.hot_share = 0.2;
  config.hot_hosts = 4;
  config.work = Work::kMix;
  config.warm_up = milliseconds(5);
  config.duration = milliseconds(50);
  const ScaleResult result = run(config);
  EXPECT_GE(result.used(), 0.9);
  EXPECT_EQ(result.failed_qps, 0u);
  EXPECT_LT(result.message_time(0.5), std::chrono::microseconds(300));
}

}  // namespace
}  // namespace uroce::simulator

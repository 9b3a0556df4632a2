// SPDX-License-Identifier: BSD-2-Clause
// A peer, or a switch on the way to it, that pauses: the probes of all QPs to it are due at once. What they send stays
// within the destination's budget, and nobody is left behind.
#include "engine/transport/reliable/probe_budget.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "tests/simulator/network.h"

namespace uroce::simulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::ProbeBudget;

constexpr int kQps = 1000;
constexpr int kMessages = 3;  // of each: a probe is two packets
constexpr Duration kPause = milliseconds(5);

struct Course {
  std::vector<Time> again;     // frames of the pause that are sent again
  std::vector<Time> complete;  // by QP
  uint64_t probes = 0, put_off = 0, timeouts = 0;
};

// Everybody sends; what the peer gets before the end of the pause is lost, or is answered at its end.
class Pause : public testing::Test {
 protected:
  Course run(bool lost, uint8_t timeout) {
    auto attributes = Network::default_attributes();
    attributes.timeout = timeout;
    network_.join_pair({.queue_frames = 8 * kQps}, {.queue_frames = 8 * kQps});
    Host &a = *network_.hosts[0], &b = *network_.hosts[1];
    Link& forward = *network_.links[0];
    std::vector<Network::Connection> all;
    for (int i = 0; i < kQps; ++i) {
      all.push_back(
          network_.connect(a, b, attributes, 100, 200, {.depth = 4, .cq_capacity = 8}, {.depth = 4, .cq_capacity = 8}));
    }
    start_ = network_.events.now();
    const auto paused = [this] { return network_.events.now() < start_ + kPause; };
    Course course;
    size_t frames = 0;
    forward.filter = [&](const Frame&) {
      if (++frames > kQps * kMessages && paused()) course.again.push_back(network_.events.now());
      return !lost || !paused();
    };
    if (!lost) forward.config.delay = kPause;
    network_.events.after(kPause, [&] { forward.config.delay = microseconds(5); });
    for (const auto& connection : all) {
      for (uint64_t i = 0; i < kMessages; ++i) {
        queue::SendWqe wqe{};
        wqe.wr_id = i;
        wqe.opcode = queue::WrOpcode::kSend;
        wqe.flags = i + 1 == kMessages ? queue::kSignaled : 0;
        EXPECT_TRUE(connection.b.post_receive(i));
        EXPECT_TRUE(connection.a.post(wqe, {}));
      }
    }
    course.complete.assign(kQps, kNever);
    size_t completed = 0;
    const auto done = [&] {
      for (size_t i = 0; i < all.size(); ++i) {
        if (course.complete[i] != kNever || all[i].a.send_cq.empty()) continue;
        EXPECT_EQ(all[i].a.poll(all[i].a.send_cq)->status, queue::WcStatus::kSuccess);
        course.complete[i] = network_.events.now();
        ++completed;
      }
      return completed == all.size();
    };
    EXPECT_TRUE(network_.events.run_until(done, std::chrono::seconds(60)));
    EXPECT_EQ(network_.judge.finish(), "");
    course.probes = a.counters.get(Counter::kProbes);
    course.put_off = a.counters.get(Counter::kProbesPutOff);
    course.timeouts = a.counters.get(Counter::kTimeouts);
    return course;
  }
  // In no span of time are there more than the budget says: two packets for each probe. They may take a few rounds to
  // leave.
  static void expect_within_budget(const std::vector<Time>& sent) {
    EXPECT_GE(sent.size(), 2u * ProbeBudget::kBurst);
    constexpr Duration kRounds = microseconds(50);
    for (size_t i = 0; i < sent.size(); ++i) {
      for (size_t j = i; j < sent.size(); ++j) {
        const auto probes = ProbeBudget::kBurst + (sent[j] - sent[i] + kRounds) / ProbeBudget::kInterval + 1;
        ASSERT_LE(j - i + 1, static_cast<size_t>(2 * probes));
      }
    }
  }
  Duration last(const Course& course) const {
    return *std::max_element(course.complete.begin(), course.complete.end()) - start_;
  }

  Network network_{1};
  Time start_{};
};

// Without a transport timer, so that nothing but probes can bring the messages there.
TEST_F(Pause, LostMessagesAreProbedForWithinTheBudgetAndNobodyStarves) {
  const Course course = run(true, 0);
  expect_within_budget(course.again);
  EXPECT_GE(course.probes, uint64_t{kQps}) << "everybody needs one";
  EXPECT_GT(course.put_off, 0u);
  EXPECT_LE(last(course), kPause + 3 * kQps * ProbeBudget::kInterval) << "thrice the time in which they can be had";
}

TEST_F(Pause, LateAnswersEndItAll) {
  const Course course = run(false, 14);
  expect_within_budget(course.again);
  EXPECT_LE(last(course), kPause + milliseconds(1));
  EXPECT_EQ(course.timeouts, 0u);
}

}  // namespace
}  // namespace uroce::simulator

// SPDX-License-Identifier: BSD-2-Clause
// Congestion: switches that drop and mark. Rates go down, connections stay.
#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "tests/simulator/traffics.h"

namespace uroce::simulator {
namespace {

using queue::WrOpcode;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Incast {
  uint64_t frames = 0;  // that the messages take
  uint64_t lost = 0, marked = 0, cnps = 0;
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
  EXPECT_TRUE(network.events.run_until(
      [&] {
        const bool done = traffics.step();
        const bool any = std::any_of(each.begin(), each.end(), [](const Traffic* t) { return t->done(); });
        if (any && result.slowest_share == 0) result.slowest_share = (slowest() + 0.5) / kMessages;
        return done;
      },
      seconds(60)));
  const uint32_t path_mtu = Network::default_attributes().path_mtu;
  result.frames = each.size() * kMessages * ((config.max_size + path_mtu - 1) / path_mtu);
  result.lost = port.counters.overflowed;
  result.marked = port.counters.marked;
  result.cnps = sink.counters.get(Counter::kTxCnps);
  traffics.expect_exact();
  return result;
}

// Without a bound for what go-back-N sends again, nine of ten frames would be lost where nothing marks them. With marks
// DCQCN takes some milliseconds to find the rates (the firmware's parameters begin from above).
TEST(CongestedNetwork, IncastLosesFewFrames) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Incast plain = incast(4, 0, seed);
    EXPECT_EQ(plain.marked, 0u);
    EXPECT_EQ(plain.cnps, 0u);
    EXPECT_LT(plain.lost, plain.frames / 50);
    const Incast marked = incast(4, 8, seed);
    EXPECT_GT(marked.cnps, 0u);
    EXPECT_LE(marked.cnps, marked.marked);
    EXPECT_LT(marked.lost, marked.frames / 20);
    for (const Incast& incast : {plain, marked}) EXPECT_GT(incast.slowest_share, 0.25);
  }
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

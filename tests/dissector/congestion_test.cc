// SPDX-License-Identifier: BSD-2-Clause
// Congestion with DCQCN as the transport has it: four senders through a switch that marks. The analysis of what one
// sender's NIC saw finds every CNP and that the sender slowed down after them; that of what the receiver saw, the
// marks.
#include <gtest/gtest.h>

#include "dissector/analysis/analysis.h"
#include "tests/dissector/describe.h"
#include "tests/simulator/network.h"
#include "tests/simulator/traffic.h"

namespace uroce::dissector {
namespace {

using namespace simulator;

constexpr int kSenders = 4;

struct Seen {
  uint64_t cnps = 0, with_rates = 0, cuts = 0, marked = 0;
  uint64_t cnp_frames = 0, marked_frames = 0;  // by the bytes
};

Seen analyse(const Network& network, uint32_t interface) {
  Analysis analysis;
  std::vector<std::pair<uint32_t, Headers>> all;
  Seen seen;
  uint32_t number = 0;
  for (const pcapng::Record& record : network.judge.kept()) {
    Datagram datagram;
    if (record.interface != interface || !describe(record, ++number, datagram)) continue;
    const Headers headers = parse_headers(datagram.ib, datagram.ib_size);
    seen.cnp_frames += datagram.ib[0] == 0x81;
    seen.marked_frames += (datagram.traffic_class & 3) == 3;
    all.emplace_back(analysis.add(datagram, headers, true), headers);
  }
  for (const auto& [index, headers] : all) {
    const PacketRecord& packet = analysis.packet(index);
    seen.cnps += packet.findings.has(Finding::kCnp);
    seen.cuts += packet.findings.has(Finding::kRateCut);
    seen.marked += packet.findings.has(Finding::kCongestionMarked);
    const CnpRecord* const cnp = analysis.cnp(packet, headers);
    seen.with_rates += cnp != nullptr && cnp->rate_before > 0 && cnp->rate_after > 0;
  }
  return seen;
}

TEST(Congestion, CnpsAndTheRateChangesAfterThemAreFound) {
  Network network(1);
  network.algorithm = congestion::Algorithm::kDcqcn;  // no other cuts than those after CNPs
  LinkConfig narrow;
  narrow.queue_frames = 128;
  narrow.mark_from = 16;
  narrow.mark_all_from = 32;
  network.join_star(kSenders + 1, {}, narrow);
  Host& sink = *network.hosts[0];
  const TrafficConfig config{
      .kinds = {queue::WrOpcode::kRdmaWrite}, .messages = 25, .under_way = 4, .max_size = 100'000, .fixed_size = true};
  std::vector<std::unique_ptr<Traffic>> each;
  for (int i = 1; i <= kSenders; ++i) {
    Host& from = *network.hosts[static_cast<size_t>(i)];
    const auto c = network.connect(from, sink, Network::default_attributes(), 0x111111u * static_cast<uint32_t>(i), 1);
    each.push_back(std::make_unique<Traffic>(from, c.a, sink, c.b, network.random, config, 1024));
  }
  ASSERT_TRUE(network.events.run_until(
      [&] {
        bool done = true;
        for (const auto& traffic : each) {
          traffic->step();
          done = done && traffic->done();
        }
        return done;
      },
      std::chrono::seconds(60)));

  const Seen sender = analyse(network, 1), receiver = analyse(network, 0);
  EXPECT_GT(sender.cnp_frames, 0u);
  EXPECT_EQ(sender.cnps, sender.cnp_frames);
  EXPECT_GT(sender.with_rates, sender.cnps / 2);
  EXPECT_GT(sender.cuts, 0u);
  EXPECT_LE(sender.cuts, sender.with_rates);
  EXPECT_GT(receiver.marked, 0u);
  EXPECT_EQ(receiver.marked, receiver.marked_frames);
}

}  // namespace
}  // namespace uroce::dissector

// SPDX-License-Identifier: BSD-2-Clause
// What processes say of themselves: from the engine to `uroce stat`, and what is not believed.
#include "broker/protocol/statistics.h"

#include <gtest/gtest.h>

namespace uroce::broker {
namespace {

ProcessStatistics example() {
  ProcessStatistics statistics;
  statistics.time = 123456789012345;
  DeviceStatistics& device = statistics.devices.emplace_back();
  device.name = "uroce_eth0";
  device.netdev = "eth0";
  device.packet_io = "af_xdp, native, copy, 1 queue";
  device.counters = {{"tx_packets", UINT64_MAX}, {"drop_bad_icrc", 1}};
  device.qp_counts = {{{"rc", "rts"}, 65535}, {{"ud", "err"}, 1}};
  device.qps = {{.qpn = 0xffffff,
                 .type = "rc",
                 .state = "rts",
                 .peer_qpn = 17,
                 .peer = "2001:db8::1",
                 .sent = 1,
                 .received = 2,
                 .posted_sends = 3,
                 .posted_receives = 4},
                {.qpn = 2, .type = "ud", .state = "err", .peer = {}}};
  statistics.devices.push_back({.name = "uroce_eth1", .netdev = "eth1", .packet_io = "udp"});
  return statistics;
}

// A report of these lines about one device.
std::optional<ProcessStatistics> parse(const std::string& lines) {
  return parse_statistics("uroce-statistics 1\ntime 1\ndevice uroce_a a udp\n" + lines + "end\n");
}

TEST(Statistics, ArriveAsTheyWere) {
  EXPECT_EQ(parse_statistics(format_statistics(example())), example());
}

TEST(Statistics, CountersAtZeroAreLeftOut) {
  ProcessStatistics statistics = example();
  statistics.devices[0].counters["probes"] = 0;
  EXPECT_EQ(parse_statistics(format_statistics(statistics)), example());
}

TEST(Statistics, LinesOfOtherVersionsAreSkipped) {
  const auto parsed = parse("tomorrow 1 2 3\ncounter probes 7\n\n");
  EXPECT_FALSE(parsed) << "an empty line has no word";
  const auto known = parse("tomorrow 1 2 3\ncounter probes 7 more\n");
  ASSERT_TRUE(known);
  EXPECT_EQ(known->devices[0].counter("probes"), 7u);
}

TEST(Statistics, EveryCutIsNoticed) {
  const std::string whole = format_statistics(example());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse_statistics(whole.substr(0, size))) << size;
}

TEST(Statistics, WhatBreaksTheRules) {
  EXPECT_TRUE(parse("qp 1 rc rts 2 192.0.2.1 1 2 3 4\n"));
  for (const char* const lines : {
           "counter tx_packets\n",
           "counter tx_packets -1\n",
           "counter tx_packets 1x\n",
           "counter tx_packets 18446744073709551616\n",
           "counter Tx 1\n",
           "counter tx\x1b[2J 1\n",
           "counter tx\" 1\n",
           "counter x 1\ncounter x 2\n",
           "qps rc rts 1\nqps rc rts 1\n",
           "qps rc \"} 1\n",
           "qp 1 rc rts 2 192.0.2.1 1 2 3\n",
           "qp 4294967296 rc rts 2 192.0.2.1 1 2 3 4\n",
           "device uroce_a b udp\n",
       }) {
    EXPECT_FALSE(parse(lines)) << lines;
  }
  EXPECT_FALSE(parse_statistics("uroce-statistics 2\ntime 1\nend\n"));
  EXPECT_FALSE(parse("counter " + std::string(65, 'x') + " 1\n"));
}

std::string many(size_t count, const std::string& before, const std::string& behind) {
  std::string lines;
  for (size_t i = 0; i < count; ++i) lines += before + std::to_string(i) + behind;
  return lines;
}

TEST(Statistics, WhatIsCountedIsBounded) {
  EXPECT_TRUE(parse(many(256, "counter x", " 1\n")));
  EXPECT_FALSE(parse(many(257, "counter x", " 1\n")));
  EXPECT_TRUE(parse(many(64, "qps rc s", " 1\n")));
  EXPECT_FALSE(parse(many(65, "qps rc s", " 1\n")));
  EXPECT_TRUE(parse(many(kMostQps, "qp ", " rc rts 2 192.0.2.1 1 2 3 4\n")));
  EXPECT_FALSE(parse(many(kMostQps + 1, "qp ", " rc rts 2 192.0.2.1 1 2 3 4\n")));
  EXPECT_TRUE(parse(many(63, "device d", " e udp\n")));
  EXPECT_FALSE(parse(many(64, "device d", " e udp\n")));
  EXPECT_FALSE(parse(std::string(longest_report(kMostQps), 'x') + "\n"));
}

TEST(Statistics, LongestReportFits) {
  ProcessStatistics statistics = example();
  const std::string word(64, 'x');
  const QpStatistics longest{.qpn = UINT32_MAX,
                             .type = "xrc_initiator",
                             .state = "reset",
                             .peer_qpn = UINT32_MAX,
                             .peer = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                             .sent = UINT32_MAX,
                             .received = UINT32_MAX,
                             .posted_sends = UINT32_MAX,
                             .posted_receives = UINT32_MAX};
  statistics.devices[0].qps.assign(kMostQps, longest);
  EXPECT_LT(format_statistics(statistics).size(), longest_report(kMostQps));
}

TEST(Statistics, TextForPeopleHasNothingThatATerminalObeys) {
  const auto parsed = parse_statistics(
      "uroce-statistics 1\ntime 1\ndevice a\x1b[31m\x9b b\r udp\x07\xc3\xa9\nqp 1 rc rts 2 \x1b]0;x 1 2 3 4\nend\n");
  ASSERT_TRUE(parsed);
  const DeviceStatistics& device = parsed->devices[0];
  EXPECT_EQ(device.name, "a?[31m?");
  EXPECT_EQ(device.netdev, "b?");
  EXPECT_EQ(device.packet_io, "udp???");
  EXPECT_EQ(device.qps[0].peer, "?]0;x");
}

}  // namespace
}  // namespace uroce::broker

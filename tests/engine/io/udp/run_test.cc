// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/engine/io/test_packet.h"
#include "wire/bth.h"

namespace uroce::io::test {
namespace {

constexpr size_t kOverhead = 16;  // BTH and ICRC

class Run : public testing::Test {
 protected:
  void add(size_t payload, size_t count = 1, const wire::Envelope& envelope = envelope_v4()) {
    for (size_t i = 0; i < count; ++i) burst_.add(envelope, 0, payload);
  }
  size_t length(const RunLimits& limits = RunLimits()) { return run_length(burst_.packets(), limits); }
  io::TxPacket& packet(size_t i) { return burst_.packets()[i]; }

  TestBurst burst_;
};

TEST_F(Run, EqualPackets) {
  add(1024, 10);
  EXPECT_EQ(length(), 10u);
}

TEST_F(Run, OnlyTheLastOneMayBeShorter) {
  add(1040);  // a WRITE's first packet has a RETH
  add(1024, 4);
  EXPECT_EQ(length(), 2u);
}

TEST_F(Run, ALongerOneBeginsTheNext) {
  add(1024, 3);
  add(1028);
  EXPECT_EQ(length(), 3u);
}

// 65535 bytes of frame leave whole, one more is cut in software.
TEST_F(Run, HoldsAsMuchAsLeavesWhole) {
  for (const auto& [payload, v4, v6] : {std::tuple{1024 + 4, 62, 62}, {1024, 62, 62}, {2048, 31, 31}, {4096, 15, 15}}) {
    burst_ = {};
    add(static_cast<size_t>(payload), 64);
    EXPECT_EQ(length(), static_cast<size_t>(v4)) << payload;
    burst_ = {};
    add(static_cast<size_t>(payload), 64, envelope_v6());
    EXPECT_EQ(length(), static_cast<size_t>(v6)) << payload;
  }
  burst_ = {};
  add(1020, 64);  // 63 x 1036 = 65268
  EXPECT_EQ(length(), 63u);
  EXPECT_EQ(RunLimits().bytes_v4, 65493u);
  EXPECT_EQ(RunLimits().bytes_v6, 65473u);
}

TEST_F(Run, LastOneCountsWithItsOwnLength) {
  add(4096, 15);
  add(65493 - 15 * (4096 + kOverhead) - kOverhead - 1);
  EXPECT_EQ(length(), 16u);
  burst_ = {};
  add(4096, 15);
  add(65493 - 15 * (4096 + kOverhead) - kOverhead + 3);
  EXPECT_EQ(length(), 15u);
}

TEST_F(Run, HasAtMost64Packets) {
  add(8, 100);
  EXPECT_EQ(length(), 64u);
}

TEST_F(Run, FollowsTheNetdevsLimit) {
  add(4096, 64);
  EXPECT_EQ(length(RunLimits(32768)), 7u);
  EXPECT_EQ(length(RunLimits(1 << 20)), 15u) << "no message is longer";
  EXPECT_EQ(length(RunLimits(0)), 1u) << "a packet alone always leaves";
}

TEST_F(Run, GoesToOneQpOneWay) {
  const auto breaks = [this](auto&& change) {
    burst_ = {};
    add(8, 4);
    wire::Envelope other = envelope_v4();
    change(packet(2), other);
    packet(2).envelope = &other;
    return length() == 2;
  };
  EXPECT_FALSE(breaks([](io::TxPacket&, wire::Envelope&) {})) << "the same values at another place";
  EXPECT_TRUE(breaks([](io::TxPacket&, wire::Envelope& e) { e.source = ipv4(192, 0, 2, 9); }));
  EXPECT_TRUE(breaks([](io::TxPacket&, wire::Envelope& e) { e.destination = ipv4(192, 0, 2, 9); }));
  EXPECT_TRUE(breaks([](io::TxPacket&, wire::Envelope& e) { e.traffic_class = 0x30; }));
  EXPECT_TRUE(breaks([](io::TxPacket&, wire::Envelope& e) { e.hop_limit = 3; }));
  EXPECT_TRUE(breaks([](io::TxPacket& p, wire::Envelope&) { p.header[7] ^= 1; })) << "destination QPN";
  EXPECT_TRUE(breaks([](io::TxPacket& p, wire::Envelope&) { p.header[5] ^= 1; })) << "destination QPN";
}

TEST_F(Run, PacketsThatGoAloneDo) {
  add(8, 4);
  packet(2).alone = true;
  EXPECT_EQ(run_length(burst_.packets(), RunLimits()), 2u);
  EXPECT_EQ(run_length(burst_.packets().subspan(2), RunLimits()), 1u);
  EXPECT_EQ(run_length(burst_.packets().subspan(3), RunLimits()), 1u);
}

}  // namespace
}  // namespace uroce::io::test

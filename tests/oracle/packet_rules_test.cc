// SPDX-License-Identifier: BSD-2-Clause
// The rules that every packet has to keep.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

TEST(PacketRules, GoodPacketsOfAllKinds) {
  Trace t;
  t.out(send(100, 61));  // with pad
  t.in(ack(100, 1));
  t.in(write(500, 3));
  t.out(ack(500, 1));
  EXPECT_EQ(t.found(), "") << t.texts();
  EXPECT_EQ(t.counts().packets_out, 2u);
  EXPECT_EQ(t.counts().packets_in, 2u);
  EXPECT_EQ(t.counts().goodput_out, 61u);
  EXPECT_EQ(t.counts().goodput_in, 3u);
}

TEST(PacketRules, Icrc) {
  Trace t;
  t.out_corrupt(send(100));
  EXPECT_EQ(t.found(), "icrc@1");
}

TEST(PacketRules, InboundWithBadIcrcWasNotReceived) {
  Trace t;
  t.in_corrupt(send(500));
  t.in(send(501));
  t.out(nak(500, 0));  // a gap: 500 did not arrive
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.counts().not_received, 1u);

  Trace broken;
  broken.in_corrupt(send(500));
  broken.out(ack(500, 1));
  EXPECT_EQ(broken.found(), "acks-unreceived@2");
}

TEST(PacketRules, Tver) {
  Trace t;
  Spec spec = send(100);
  spec.spoil = [](auto& ib) { ib[1] |= 1; };
  t.out(spec);
  EXPECT_EQ(t.found(), "tver@1");
}

TEST(PacketRules, UnknownOpcode) {
  Trace t;
  Spec spec = send(100);
  spec.spoil = [](auto& ib) { ib[0] = 0x1b; };
  t.out(spec);
  EXPECT_EQ(t.found(), "opcode@1");
}

TEST(PacketRules, Pad) {
  Trace not_zero;
  Spec spec = send(100, 61);
  spec.spoil = [](auto& ib) { ib.back() = 1; };
  not_zero.out(spec);
  EXPECT_EQ(not_zero.found(), "pad@1");

  Trace missing;
  spec.spoil = [](auto& ib) {
    ib.pop_back();
    ib[1] = static_cast<uint8_t>((ib[1] & ~0x30) | 0x20);
  };
  missing.out(spec);
  EXPECT_EQ(missing.found(), "pad@1");
}

TEST(PacketRules, Pkey) {
  Trace t;
  t.out(send(100));
  Spec other = send(101);
  other.pkey = 0x8001;
  t.out(other);
  EXPECT_EQ(t.found(), "pkey@2");
}

TEST(PacketRules, Length) {
  Trace t;
  Spec spec = ack(500, 1);
  spec.spoil = [](auto& ib) { ib.resize(ib.size() + 4); };
  t.out(spec);
  EXPECT_EQ(t.found(), "length@1");
}

TEST(PacketRules, Destination) {
  Trace t;
  Spec spec = send(100);
  spec.dest_qp = 0x203;
  t.out(spec);
  EXPECT_EQ(t.found(), "destination@1");
  Trace other_host;
  spec = send(100);
  spec.peer = 3;
  other_host.out(spec);
  EXPECT_EQ(other_host.found(), "destination@1");
}

// What strangers send to the host does not matter.
TEST(PacketRules, InboundOfStrangers) {
  Trace t;
  Spec spec = send(100);
  spec.dest_qp = 0x999;
  t.in(spec);
  spec = ack(100, 1);
  spec.peer = 3;
  t.in(spec);
  EXPECT_EQ(t.found(), "");
}

TEST(PacketRules, SilenceAfterReceivedFatalNak) {
  Trace t;
  t.out(send(100));
  t.in(nak(100, 0, wire::NakCode::kRemoteAccessError));
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.out(send(100));
  broken.in(nak(100, 0, wire::NakCode::kRemoteAccessError));
  broken.out(send(101));
  broken.out(send(102));
  EXPECT_EQ(broken.found(), "sends-after-fatal@3");
}

TEST(PacketRules, SilenceAfterOwnFatalNak) {
  Trace t;
  t.in(write(500));
  t.out(nak(500, 0, wire::NakCode::kRemoteAccessError));
  t.out(send(100));
  EXPECT_EQ(t.found(), "sends-after-fatal@3");
}

TEST(PacketRules, FatalNakBehindTheSlackOnly) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  t.out(send(100));
  t.in(nak(100, 0, wire::NakCode::kInvalidRequest));
  t.out(send(101));  // may have been on its way
  t.wait(milliseconds(2));
  t.out(send(102));
  EXPECT_EQ(t.found(), "sends-after-fatal@4");
}

// Of a packet that the capture cut short the headers are judged.
TEST(PacketRules, CutPackets) {
  Trace t;
  t.cut(100);
  t.out(send(100, 200));
  t.cut(100);
  t.out(send(102, 200));
  EXPECT_EQ(t.found(), "psn-consecutive@2");
}

TEST(PacketRules, Ipv4IdMayVaryInResentPackets) {
  Trace t;
  t.out(send(100));
  t.ip_id(77);
  t.out(send(100));
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.counts().retransmissions_out, 1u);
}

}  // namespace
}  // namespace uroce::oracle

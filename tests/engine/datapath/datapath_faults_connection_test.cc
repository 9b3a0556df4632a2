// SPDX-License-Identifier: BSD-2-Clause
// Hostile frames against a whole engine with traffic under way: packets that are damaged, or not of this connection
// (faults.md 7 to 11 and 32). Each has its own named counter, no effect and no answer, and the traffic goes on. Tests
// are named after the fault; docs/faults.md is the index.
#include <gmock/gmock.h>

#include "tests/engine/datapath/fault_rig.h"

namespace uroce::engine::test {
namespace {

using testing::StartsWith;
using wire::Opcode;

// --- 7: every bit flipped --------------------------------------------------------------------------------------------

constexpr const char* kMalformed = "malformed frame";
constexpr const char* kAnyDrop = "drop: ";

const char* text(Counter counter) {
  return Counters::text(counter);
}

// What a flipped bit of the byte `at` in an IP header counts as. Empty: the ICRC leaves it out, because routers may
// change it.
const char* drop_in_ip(bool v6, size_t at, uint8_t bit) {
  if (v6) {
    if (at == 0) return bit & 0xf0 ? kMalformed : "";
    if (at <= 3 || at == 7) return "";
    return at < 8 ? kMalformed : text(Counter::kDropWrongAddress);
  }
  if (at == 1 || at == 8) return "";                                                       // TOS, TTL
  if (at == 4 || at == 5 || (at == 6 && bit == 0x40)) return text(Counter::kDropBadIcrc);  // ID, DF
  return at < 12 ? kMalformed : text(Counter::kDropWrongAddress);
}

const char* drop_in_udp(size_t at) {
  if (at <= 1) return text(Counter::kDropBadIcrc);  // source port
  return at <= 5 ? kMalformed : "";
}

const char* drop_in_ib(size_t at, uint8_t bit) {
  if (at == 0) return kAnyDrop;                                    // as another opcode it may have another length
  if (at == 1 && (bit & 0x30)) return kAnyDrop;                    // pad, maybe more than there is
  if (at == 1 && (bit & 0x0f)) return text(Counter::kDropParse);   // TVer
  if (at == 2 && bit == 0x80) return text(Counter::kDropBadIcrc);  // the membership bit is not compared
  if (at == 2 || at == 3) return text(Counter::kDropWrongPkey);
  if (at == 4) return "";  // FECN, BECN, reserved
  if (at >= 5 && at <= 7) return text(Counter::kDropUnknownQp);
  return text(Counter::kDropBadIcrc);
}

std::string drop_in_frame(bool v6, size_t at, uint8_t bit) {
  return at < udp_at(v6)  ? drop_in_ip(v6, at - kIp, bit)
         : at < ib_at(v6) ? drop_in_udp(at - udp_at(v6))
                          : drop_in_ib(at - ib_at(v6), bit);
}

TEST(Fault7, EveryBitOfEveryKindOfPacket) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    std::vector<Bytes> frames = {rig.peer.sent.front()};
    for (const Opcode opcode : rc_opcodes()) frames.push_back(rig.frame(rig.plausible(opcode)));
    for (const Bytes& frame : frames) {
      for (size_t i = kIp * 8; i < frame.size() * 8; ++i) {
        const size_t at = i / 8;
        const auto bit = static_cast<uint8_t>(0x80 >> i % 8);
        const std::string expected = drop_in_frame(v6, at, bit);
        if (expected.empty()) continue;
        Bytes bad = frame;
        bad[at] ^= bit;
        const bool ip4_checksum = at == kIp + 10 || at == kIp + 11;
        if (!v6 && at > kIp && !ip4_checksum) fix_checksum(bad);
        const std::string counted = rig.attack(bad);
        ASSERT_THAT(counted, StartsWith(expected)) << "byte " << at << ", bit " << int{bit};
        ASSERT_TRUE(counted.ends_with(" +1") && counted.find(',') == std::string::npos) << counted;
      }
    }
    rig.expect_traffic_works();
  }
}

// The bits that the ICRC leaves out may arrive as anything. CE has consequences of its own, so ECN is left alone.
TEST(Fault7, WhatRoutersMayChangeDoesNotMatter) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.on_the_way = [v6, n = 0u](Bytes& frame) mutable {
      ++n;
      uint8_t* ip = &frame[kIp];
      if (v6) {
        const uint32_t version_class_label = wire::load_be32(ip);
        wire::store_be32(ip, version_class_label ^ ((n & 0x3f) << 22 | (n * 7919 & 0xfffff)));
        ip[7] = static_cast<uint8_t>(n);
      } else {
        ip[1] ^= static_cast<uint8_t>(n << 2);
        ip[8] = static_cast<uint8_t>(n);
        fix_checksum(frame);
      }
      frame[ib_at(v6) + 4] ^= static_cast<uint8_t>(n & 0x3f);
    };
    rig.begin_traffic();
    rig.expect_traffic_works();
  }
}

// --- 8: P_Key --------------------------------------------------------------------------------------------------------

TEST(Fault8, EveryOtherPkey) {
  FaultRig rig;
  rig.begin_traffic();
  Bytes ib = rig.ib(rig.plausible(Opcode::kRcSendLast));
  for (uint32_t pkey = 0; pkey < 0x10000; ++pkey) {
    if ((pkey & 0x7fff) == 0x7fff) continue;
    wire::store_be16(&ib[2], static_cast<uint16_t>(pkey));
    const std::string counted = rig.attack(sealed_frame(rig.from_peer(), ib));
    ASSERT_EQ(counted, "drop: P_Key mismatch +1") << pkey;
  }
  rig.expect_traffic_works();
}

TEST(Fault8, WrongPkeyOnEveryKindOfPacket) {
  FaultRig rig;
  rig.begin_traffic();
  for (const Opcode opcode : rc_opcodes()) {
    for (const uint16_t pkey : {0x0000, 0x8000, 0x7ffe, 0xfffe}) {
      Bytes ib = rig.ib(rig.plausible(opcode));
      wire::store_be16(&ib[2], pkey);
      rig.expect_dropped(sealed_frame(rig.from_peer(), ib), Counter::kDropWrongPkey);
    }
  }
  rig.expect_traffic_works();
}

// A full member, which we are, takes packets of limited members too (IBTA 10.9.3).
TEST(Fault8, LimitedMemberPasses) {
  FaultRig rig;
  rig.on_the_way = [](Bytes& frame) {
    io::RxPacket rx;
    ASSERT_EQ(wire::parse_frame(frame, rx.envelope, rx.ib), wire::FrameError::kNone);
    Bytes ib(rx.ib.begin(), rx.ib.end());
    wire::store_be16(&ib[2], 0x7fff);
    frame = sealed_frame(rx.envelope, ib);
  };
  rig.begin_traffic();
  rig.expect_traffic_works();
}

// --- 9: QPs that are not there or do not receive ---------------------------------------------------------------------

TEST(Fault9, QpThatDoesNotReceive) {
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kErr}) {
    SCOPED_TRACE(static_cast<int>(state));
    FaultRig rig;
    const auto other = rig.victim.make_qp();
    transport::QpAttributes a = transport::test::default_attributes();
    a.dest_qpn = rig.peer.qp->transport->qpn();
    rig.victim.connect(*other, state == QpState::kErr ? QpState::kRts : state, a, rig.victim.qp->path.envelope);
    if (state == QpState::kErr) {
      a.state = QpState::kErr;
      ASSERT_EQ(other->transport->modify(a, transport::kQpState, rig.victim.now), 0);
    }
    rig.begin_traffic();
    for (const Opcode opcode : rc_opcodes()) {
      Bytes ib = rig.ib(rig.plausible(opcode));
      wire::store_be24(&ib[5], other->transport->qpn().value());
      seal(rig.from_peer(), ib);
      rig.expect_dropped(frame_of(rig.from_peer(), ib), Counter::kDropQpState);
      ib.back() ^= 1;  // the state comes first, it costs less than the ICRC
      rig.expect_dropped(frame_of(rig.from_peer(), ib), Counter::kDropQpState);
      EXPECT_EQ(other->transport->state(), state);
    }
    rig.expect_traffic_works();
  }
}

// Ready to receive means requests; nothing has been sent that could be answered.
TEST(Fault9, ResponsesToAQpThatHasNotSentAnything) {
  FaultRig rig;
  const auto other = rig.victim.make_qp();
  transport::QpAttributes a = transport::test::default_attributes();
  rig.victim.connect(*other, QpState::kRtr, a, rig.victim.qp->path.envelope);
  rig.begin_traffic();
  for (const Opcode opcode : rc_opcodes()) {
    if (wire::opcode_info(opcode).request) continue;
    Bytes ib = rig.ib(rig.plausible(opcode));
    wire::store_be24(&ib[5], other->transport->qpn().value());
    rig.expect_dropped(sealed_frame(rig.from_peer(), ib), Counter::kDropQpState);
  }
  rig.expect_traffic_works();
}

TEST(Fault9, UnknownAndDestroyedQps) {
  FaultRig rig;
  auto destroyed = rig.victim.make_qp();
  std::vector<uint32_t> qpns = {destroyed->transport->qpn().value()};
  rig.victim.datapath.remove(*destroyed, rig.victim.now);
  rig.victim.tables.qpns[0].release(destroyed->transport->qpn());
  destroyed.reset();
  for (int bit = 0; bit < 24; ++bit) qpns.push_back(rig.victim.qp->transport->qpn().value() ^ (1u << bit));
  rig.begin_traffic();
  for (const uint32_t qpn : qpns) {
    for (const Opcode opcode : rc_opcodes()) {
      Bytes ib = rig.ib(rig.plausible(opcode));
      wire::store_be24(&ib[5], qpn);
      rig.expect_dropped(sealed_frame(rig.from_peer(), ib), Counter::kDropUnknownQp);
    }
  }
  rig.expect_traffic_works();
}

// --- 10, 32: addresses -----------------------------------------------------------------------------------------------

TEST(Fault10, EveryOtherAddressInOneBit) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    const Bytes ib = rig.ib(rig.plausible(Opcode::kRcSendLast));
    for (size_t bit = v6 ? 0 : 96; bit < 128; ++bit) {
      for (wire::IpAddress wire::Envelope::*const which : {&wire::Envelope::source, &wire::Envelope::destination}) {
        wire::Envelope wrong = rig.from_peer();
        (wrong.*which).bytes[bit / 8] ^= static_cast<uint8_t>(0x80 >> bit % 8);
        rig.expect_dropped(sealed_frame(wrong, ib), Counter::kDropWrongAddress);
      }
    }
    rig.expect_traffic_works();
  }
}

// Our own packet sent back, and a packet of the other IP version.
TEST(Fault10, EveryKindOfPacketFromElsewhere) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    const FaultRig other_version(!v6);
    wire::Envelope spoofed = rig.from_peer();
    spoofed.source.bytes[15] = 3;
    rig.begin_traffic();
    for (const Opcode opcode : rc_opcodes()) {
      const Bytes ib = rig.ib(rig.plausible(opcode));
      for (const wire::Envelope& wrong :
           {spoofed, rig.victim.qp->path.envelope, other_version.from_peer(), other_version.victim.qp->path.envelope}) {
        rig.expect_dropped(sealed_frame(wrong, ib), Counter::kDropWrongAddress);
      }
    }
    rig.expect_traffic_works();
  }
}

// QPs of one process that are connected to each other have their own address on both ends. What comes from outside
// under that address is not theirs, however right it is.
TEST(Fault10, OwnAddressFromOutside) {
  FaultRig rig;
  const auto inside = rig.victim.make_qp();
  wire::Envelope own = rig.victim.qp->path.envelope;
  own.destination = own.source;
  rig.victim.connect(*inside, QpState::kRts, transport::test::default_attributes(), own);
  inside->path.to = std::make_shared<Destination>(inside->path.envelope.source, inside->path.envelope.destination);
  inside->path.to->route.loopback = true;
  rig.begin_traffic();
  Bytes ib = rig.ib(rig.write(kRqPsn, pattern(8, 77)));
  wire::store_be24(&ib[5], inside->transport->qpn().value());
  rig.expect_dropped(sealed_frame(own, ib), Counter::kDropWrongAddress);
  rig.expect_traffic_works();
}

// Every 257th of the 2^24 PSNs, with every kind of packet in turn, from an address that is not the peer's. All of them
// take minutes under the address sanitizer, and no check looks at the PSN before it looks at the address.
TEST(Fault32, SpoofedPsnsFromAWrongSource) {
  FaultRig rig;
  rig.begin_traffic();
  wire::Envelope wrong = rig.from_peer();
  wrong.source.bytes[15] = 3;
  std::vector<Bytes> kinds;
  for (const Opcode opcode : rc_opcodes()) kinds.push_back(rig.ib(rig.plausible(opcode)));
  size_t sent = 0;
  for (uint32_t psn = 0; psn < 1u << 24; psn += 257, ++sent) {
    Bytes& ib = kinds[sent % kinds.size()];
    wire::store_be24(&ib[9], psn);
    const std::string counted = rig.attack(sealed_frame(wrong, ib));
    ASSERT_EQ(counted, "drop: source or destination address is not the connection's +1") << psn;
  }
  EXPECT_EQ(rig.victim.datapath.counters().get(Counter::kDropWrongAddress), sent);
  rig.expect_traffic_works();
}

// --- 11: UDP checksum ------------------------------------------------------------------------------------------------

TEST(Fault11, UdpChecksumDoesNotMatter) {
  enum class Checksum { kZero, kPartial, kWrong, kOnes };
  for (const bool v6 : {false, true}) {
    for (const Checksum checksum : {Checksum::kZero, Checksum::kPartial, Checksum::kWrong, Checksum::kOnes}) {
      FaultRig rig(v6);
      rig.on_the_way = [&](Bytes& frame) {
        uint8_t* udp = &frame[udp_at(v6)];
        const size_t addresses = v6 ? 32 : 8;
        const uint16_t pseudo_header =
            internet_sum({udp - addresses, addresses}, wire::kIpProtocolUdp + wire::load_be16(udp + 4));
        wire::store_be16(udp + 6, checksum == Checksum::kZero      ? 0
                                  : checksum == Checksum::kPartial ? pseudo_header
                                  : checksum == Checksum::kOnes    ? 0xffff
                                                                   : 0xdead);
      };
      rig.begin_traffic();
      rig.expect_traffic_works();
    }
  }
}

}  // namespace
}  // namespace uroce::engine::test

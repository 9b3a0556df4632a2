// SPDX-License-Identifier: BSD-2-Clause
// What the analysis makes of IPv4 IDs: copies that come late, IDs that go around, counters that others use too; and
// what a requester does with copies and with what it drops. Two hosts, packets without ICRC.
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "dissector/analysis/analysis.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

constexpr uint8_t kSendOnly = 0x04, kReadRequest = 0x0c, kResponseOnly = 0x10, kAcknowledge = 0x11;
constexpr uint8_t kAck = 0x1f, kRnrNak = 0x21;  // syndromes; the RNR timer says 10 us
constexpr int64_t kMicrosecond = 1000, kSecond = 1'000'000'000;

class SendingOrder : public testing::Test {
 protected:
  struct Packet {
    uint8_t opcode;
    uint32_t psn;
    uint16_t id;
    uint8_t syndrome = kAck;
    uint32_t length = 0;  // of a READ
    size_t payload = 0;
    bool bad_ip_checksum = false;
  };

  // Record numbers, one microsecond later each.
  uint32_t forth(const Packet& packet) { return add(packet, true); }
  uint32_t back(const Packet& packet) { return add(packet, false); }
  void wait(int64_t time) { now_ += time; }
  bool has(uint32_t index, Finding finding) const { return analysis.packet(index).findings.has(finding); }
  bool again(uint32_t index) const { return analysis.packet(index).findings.is_retransmission(); }
  // So many requests, answered one by one, with IDs from `id` on.
  void exchange(uint32_t count, uint32_t& psn, uint16_t& id) {
    for (uint32_t i = 0; i < count; ++i, ++psn, ++id) {
      forth({kSendOnly, psn, id});
      back({kAcknowledge, psn, id});
    }
  }

  Analysis analysis;

 private:
  uint32_t add(const Packet& p, bool forth) {
    std::vector<uint8_t> ib(wire::kBthSize);
    ib[0] = p.opcode;
    ib[2] = ib[3] = 0xff;
    wire::store_be24(&ib[5], forth ? 2 : 1);
    wire::store_be24(&ib[9], p.psn & wire::kMask24);
    if (p.opcode == kReadRequest) {
      ib.resize(ib.size() + 16);
      wire::store_be32(&ib[ib.size() - 4], p.length);
    }
    if (p.opcode == kAcknowledge || p.opcode == kResponseOnly) ib.insert(ib.end(), {p.syndrome, 0, 0, 1});
    ib.resize(ib.size() + p.payload + 4);
    const uint8_t hosts[2][4] = {{10, 0, 0, 1}, {10, 0, 0, 2}};
    wire::Envelope envelope{.source = wire::IpAddress::v4(hosts[forth ? 0 : 1]),
                            .destination = wire::IpAddress::v4(hosts[forth ? 1 : 0]),
                            .source_port = 0xc000,
                            .ip_id = p.id};
    uint8_t frame[wire::kMaxFrameHeaderSize];
    wire::emit_frame_headers(envelope, static_cast<uint32_t>(ib.size() + wire::kUdpSize), frame);
    if (p.bad_ip_checksum) frame[wire::kEthernetSize + 10] ^= 1;
    Datagram d;
    d.frame = ++frames_;
    d.time = now_ += kMicrosecond;
    d.source = envelope.source;
    d.destination = envelope.destination;
    d.source_port = envelope.source_port;
    d.has_ip_id = true;
    d.ip_id = p.id;
    d.ip = std::span<const uint8_t>(frame).subspan(wire::kEthernetSize, wire::kIpv4Size);
    d.ib = ib;
    d.ib_size = static_cast<uint32_t>(ib.size());
    return analysis.add(d, parse_headers(d.ib, d.ib_size), false);
  }

  int64_t now_ = kSecond;
  uint32_t frames_ = 0;
};

// Thousands of packets later, when the IDs have gone around in between.
TEST_F(SendingOrder, LateCopiesAreKnown) {
  uint32_t psn = 100;
  uint16_t id = 0xf000;
  exchange(8000, psn, id);
  const uint32_t request = forth({kSendOnly, psn - 7000, static_cast<uint16_t>(id - 7000)});
  EXPECT_TRUE(has(request, Finding::kDuplicatePacket));
  EXPECT_FALSE(again(request));
  const uint32_t answer = back({kAcknowledge, psn - 7000, static_cast<uint16_t>(id - 7000)});
  EXPECT_TRUE(has(answer, Finding::kDuplicatePacket));
  // Another ID: sent again.
  const uint32_t repeated = forth({kSendOnly, psn - 7000, id});
  EXPECT_TRUE(again(repeated));
  EXPECT_FALSE(has(repeated, Finding::kDuplicatePacket));
}

// The ID that it had 65536 packets ago is a new one.
TEST_F(SendingOrder, IdsGoAround) {
  uint32_t psn = 100;
  uint16_t id = 0;
  const uint32_t stuck = psn++;
  forth({kSendOnly, stuck, id++});
  for (uint32_t i = 1; i < 0x10000; ++i, ++id) forth({kSendOnly, psn + i % 16, id});
  ASSERT_EQ(id, 0);
  const uint32_t repeated = forth({kSendOnly, stuck, id});
  EXPECT_TRUE(again(repeated));
  EXPECT_FALSE(has(repeated, Finding::kDuplicatePacket));
}

// Overtaken by thousands, but not sent before: an original, or a repetition whose original was lost.
TEST_F(SendingOrder, LatePacketsAreOriginalsOrNot) {
  uint32_t psn = 100;
  uint16_t id = 50;
  exchange(3, psn, id);
  const uint32_t missing = psn++;
  const uint16_t missing_id = id++;
  for (uint32_t i = 0; i < 3000; ++i) forth({kSendOnly, psn++, id++});
  EXPECT_TRUE(has(forth({kSendOnly, missing, missing_id}), Finding::kOutOfOrder));

  const uint32_t lost = psn++;
  ++id;
  for (uint32_t i = 0; i < 10; ++i) forth({kSendOnly, psn++, id++});
  const uint16_t repeated_id = id++;
  for (uint32_t i = 0; i < 3000; ++i) forth({kSendOnly, psn++, id++});
  const uint32_t repeated = forth({kSendOnly, lost, repeated_id});
  EXPECT_TRUE(again(repeated));
  EXPECT_FALSE(has(repeated, Finding::kDuplicatePacket));
}

// While this connection is silent the sender's counter goes on by more than half its range.
TEST_F(SendingOrder, OthersUseTheCounterInAPause) {
  uint32_t psn = 100;
  uint16_t id = 10;
  exchange(20, psn, id);
  psn += 1;  // one is lost
  forth({kSendOnly, psn, ++id});
  wait(kSecond);
  const uint32_t repeated = forth({kSendOnly, psn - 1, static_cast<uint16_t>(id + 40000)});
  EXPECT_TRUE(again(repeated));
  EXPECT_FALSE(has(repeated, Finding::kOutOfOrder));
}

TEST_F(SendingOrder, TheFirstTwoAreSwapped) {
  forth({kSendOnly, 101, 1});
  back({kAcknowledge, 100, 0, 0x60});  // that NAK was too early
  const uint32_t late = forth({kSendOnly, 100, 0});
  EXPECT_TRUE(has(late, Finding::kOutOfOrder));
  EXPECT_FALSE(again(late));
}

// The first one was overtaken by the capture's first one: its answer shows which direction it belongs to.
TEST_F(SendingOrder, AnswerToWhatWasOvertakenAtTheBeginning) {
  forth({kReadRequest, 102, 2, kAck, 100});
  forth({kReadRequest, 100, 0, kAck, 100});
  const uint32_t answer = back({kResponseOnly, 100, 0, kAck, 0, 100});
  EXPECT_NE(analysis.peer(analysis.packet(answer)), nullptr);
  EXPECT_GE(analysis.packet(answer).answer_time, 0);
  const uint32_t replay = back({kResponseOnly, 100, 1, kAck, 0, 100});
  EXPECT_TRUE(has(replay, Finding::kResponseReplay));
}

TEST_F(SendingOrder, WhatWasOvertakenAtTheBeginningIsNotAnsweredYet) {
  forth({kSendOnly, 102, 2});
  forth({kSendOnly, 100, 0});
  wait(kSecond);
  const uint32_t repeated = forth({kSendOnly, 100, 3});
  EXPECT_TRUE(has(repeated, Finding::kTimeoutRetransmission));
  EXPECT_FALSE(has(repeated, Finding::kDuplicateRequest));
}

// The sender goes back, and what it sent before it did comes late.
TEST_F(SendingOrder, LatePacketsTellHowFarTheSenderHadCome) {
  uint32_t psn = 100;
  uint16_t id = 50;
  exchange(3, psn, id);
  forth({kSendOnly, psn, id});                                  // ID 0 from here, PSN 0
  forth({kSendOnly, psn, static_cast<uint16_t>(id + 7)});       // again; 1 to 6 come late or never
  forth({kSendOnly, psn + 6, static_cast<uint16_t>(id + 20)});  // the newest
  forth({kSendOnly, psn + 5, static_cast<uint16_t>(id + 5)});   // of the first time
  const uint32_t again_late = forth({kSendOnly, psn + 3, static_cast<uint16_t>(id + 10)});
  EXPECT_TRUE(again(again_late));
  EXPECT_FALSE(has(again_late, Finding::kDuplicatePacket));
}

// Whoever had heard of the NAK would have begun with what it asks for.
TEST_F(SendingOrder, CopyOfTheFirstPacketBehindANak) {
  forth({kSendOnly, 105, 3});
  back({kAcknowledge, 100, 0, 0x60});
  const uint32_t copy = forth({kSendOnly, 105, 3});
  EXPECT_TRUE(has(copy, Finding::kDuplicatePacket));
  EXPECT_FALSE(again(copy));
}

TEST_F(SendingOrder, ConstantIdsTellNothing) {
  for (uint32_t psn = 100; psn < 120; ++psn) {
    forth({kSendOnly, psn, 0});
    back({kAcknowledge, psn, 0});
  }
  forth({kSendOnly, 120, 0});
  wait(kSecond);
  const uint32_t repeated = forth({kSendOnly, 120, 0});
  EXPECT_TRUE(again(repeated));
  EXPECT_FALSE(has(repeated, Finding::kDuplicatePacket));
}

TEST_F(SendingOrder, RandomIdsTellPacketsButNoOrder) {
  std::mt19937 random(1);
  std::vector<uint16_t> ids;
  for (uint32_t i = 0; i < 2000; ++i) {
    ids.push_back(static_cast<uint16_t>(random()));
    EXPECT_FALSE(has(forth({kSendOnly, 100 + i, ids.back()}), Finding::kOutOfOrder));
    if (i < 20) continue;
    EXPECT_TRUE(has(forth({kSendOnly, 100 + i - 10, ids[i - 10]}), Finding::kDuplicatePacket)) << i;
    const uint32_t repeated = forth({kSendOnly, 100 + i, static_cast<uint16_t>(random())});
    EXPECT_TRUE(again(repeated) && !has(repeated, Finding::kOutOfOrder)) << i;
  }
}

// Two of three packets come late.
TEST_F(SendingOrder, OrderIsKnownWhenMuchIsLate) {
  uint32_t psn = 100;
  uint16_t id = 10;
  exchange(20, psn, id);
  for (uint32_t i = 0; i < 200; ++i, psn += 3, id += 3) {
    forth({kSendOnly, psn + 2, static_cast<uint16_t>(id + 2)});
    EXPECT_TRUE(has(forth({kSendOnly, psn + 1, static_cast<uint16_t>(id + 1)}), Finding::kOutOfOrder)) << i;
    EXPECT_TRUE(has(forth({kSendOnly, psn, id}), Finding::kOutOfOrder)) << i;
  }
}

// Its requester waits as long as it says, not knowing that it is a copy.
TEST_F(SendingOrder, CopyOfAnRnrNakMakesWait) {
  uint32_t psn = 100;
  uint16_t id = 10;
  exchange(20, psn, id);
  forth({kSendOnly, psn, id});
  back({kAcknowledge, psn, id, kRnrNak});
  wait(11 * kMicrosecond);
  EXPECT_FALSE(has(forth({kSendOnly, psn, static_cast<uint16_t>(id + 1)}), Finding::kRnrNotHonoured));
  back({kAcknowledge, psn, id, kRnrNak});  // a copy
  wait(6 * kMicrosecond);
  back({kAcknowledge, psn, static_cast<uint16_t>(id + 1), kRnrNak});
  wait(5 * kMicrosecond);
  EXPECT_FALSE(has(forth({kSendOnly, psn, static_cast<uint16_t>(id + 2)}), Finding::kRnrNotHonoured));
  back({kAcknowledge, psn, static_cast<uint16_t>(id + 2), kRnrNak});
  wait(5 * kMicrosecond);
  EXPECT_TRUE(has(forth({kSendOnly, psn, static_cast<uint16_t>(id + 3)}), Finding::kRnrNotHonoured));
}

// A READ in front of it is unanswered: its requester takes the RNR NAK for an implied NAK of that and goes back at
// once.
TEST_F(SendingOrder, RnrNakBehindALostResponseIsNoReasonToWait) {
  uint32_t psn = 100;
  uint16_t id = 10;
  exchange(20, psn, id);
  // How fast this requester reacts to an RNR NAK.
  forth({kSendOnly, psn, id++});
  back({kAcknowledge, psn, id, kRnrNak});
  wait(10 * kMicrosecond);
  forth({kSendOnly, psn, id++});
  back({kAcknowledge, psn++, id});
  forth({kReadRequest, psn, id++, kAck, 100});
  forth({kSendOnly, psn + 1, id++});
  EXPECT_TRUE(has(back({kAcknowledge, psn + 1, static_cast<uint16_t>(id + 1), kRnrNak}), Finding::kImpliedNak));
  back({kAcknowledge, psn + 1, static_cast<uint16_t>(id + 1), kRnrNak});  // a copy
  wait(4 * kMicrosecond);
  EXPECT_TRUE(has(forth({kReadRequest, psn, id++, kAck, 100}), Finding::kImpliedNakRetransmission));
  EXPECT_FALSE(has(forth({kSendOnly, psn + 1, id++}), Finding::kRnrNotHonoured));
}

// Nobody has received it: what it carries is missing.
TEST_F(SendingOrder, BadIpChecksumIsALoss) {
  uint32_t psn = 100;
  uint16_t id = 10;
  exchange(20, psn, id);
  Packet damaged{kSendOnly, psn, id};
  damaged.bad_ip_checksum = true;
  EXPECT_TRUE(has(forth(damaged), Finding::kBadIpChecksum));
  EXPECT_TRUE(has(forth({kSendOnly, psn + 1, static_cast<uint16_t>(id + 1)}), Finding::kPsnGap));
}

// Whoever captured has set them all to something: after eight of them that is clear.
TEST_F(SendingOrder, IpChecksumsThatAreAllWrongAreNoLosses) {
  for (uint32_t psn = 100; psn < 120; ++psn) {
    Packet packet{kSendOnly, psn, static_cast<uint16_t>(psn)};
    packet.bad_ip_checksum = true;
    const uint32_t index = forth(packet);
    EXPECT_FALSE(has(index, Finding::kPsnGap));
    EXPECT_EQ(analysis.packet(index).message == kNone, psn < 108) << psn;
  }
}

// Two PSNs for the READ fitted a path MTU of 512; its only response shows that it took one.
TEST_F(SendingOrder, GapBehindAReadIsFoundLater) {
  forth({kReadRequest, 100, 1, kAck, 920});
  const uint32_t next = forth({kReadRequest, 102, 2, kAck, 100});
  const uint32_t behind = forth({kReadRequest, 103, 3, kAck, 100});
  EXPECT_FALSE(has(next, Finding::kPsnGap));
  back({kResponseOnly, 100, 1, kAck, 0, 920});
  EXPECT_TRUE(has(next, Finding::kPsnGap));
  EXPECT_EQ(analysis.packet(next).missing, 1u);
  // What fills the gap does not undo it.
  forth({kReadRequest, 101, 4, kAck, 100});
  back({kResponseOnly, 101, 2, kAck, 0, 100});
  EXPECT_TRUE(has(next, Finding::kPsnGap));
  EXPECT_FALSE(has(behind, Finding::kPsnGap));
}

// The first READ shows that the path MTU is 4096, so the second one takes one PSN and not three.
TEST_F(SendingOrder, WhatFollowsAReadBoundsThePathMtu) {
  forth({kReadRequest, 100, 1, kAck, 2700});
  forth({kReadRequest, 101, 2, kAck, 2900});
  EXPECT_TRUE(has(forth({kReadRequest, 104, 3, kAck, 100}), Finding::kPsnGap));
}

// A request among the PSNs that a READ seemed to take: it took fewer, and one was missing behind it.
TEST_F(SendingOrder, RequestInsideAReadEndsIt) {
  forth({kReadRequest, 100, 1, kAck, 2000});
  const uint32_t next = forth({kReadRequest, 102, 2, kAck, 10});
  EXPECT_FALSE(has(next, Finding::kPsnGap));
  wait(kSecond);
  // The rest of it is no such request.
  EXPECT_TRUE(again(forth({kReadRequest, 101, 3, kAck, 976})));
  EXPECT_FALSE(has(next, Finding::kPsnGap));
  const uint32_t missing = forth({kReadRequest, 101, 4, kAck, 50});
  EXPECT_TRUE(again(missing));
  EXPECT_TRUE(has(next, Finding::kPsnGap));
  const uint32_t answer = back({kResponseOnly, 101, 1, kAck, 0, 50});
  EXPECT_FALSE(has(answer, Finding::kAckUnseen));
  EXPECT_EQ(analysis.packet(answer).related, analysis.packet(missing).frame);
}

}  // namespace
}  // namespace uroce::dissector

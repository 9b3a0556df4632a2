// SPDX-License-Identifier: BSD-2-Clause
// The analysis by itself, without Wireshark, so that it also runs under sanitizers: ICRC vectors, and hostile packets.
#include "dissector/analysis/analysis.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/wire/hex.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

// IP header, UDP header and InfiniBand bytes as one buffer, described as the plugin would.
struct Captured {
  explicit Captured(std::vector<uint8_t> b) : bytes(std::move(b)) {
    const bool v4 = bytes[0] >> 4 == 4;
    const size_t ip_size = v4 ? wire::kIpv4Size : wire::kIpv6Size;
    datagram.ip = std::span(bytes).first(ip_size);
    datagram.ib = std::span(bytes).subspan(ip_size + wire::kUdpSize);
    datagram.ib_size = static_cast<uint32_t>(datagram.ib.size());
  }
  std::vector<uint8_t> bytes;
  Datagram datagram;
};

// wire.md "ICRC vectors": a CNP of a ConnectX-4 Lx.
std::vector<uint8_t> connectx_cnp() {
  return wire::hex(
      "45c2003c718c4000401191610a0011010a001201"
      "000012b700280000"
      "8100ffff4000011800000000"
      "0000000000000000000000000000000082fd002a");
}

TEST(IcrcCheck, TakesThePacketOfAConnectX) {
  const Captured cnp(connectx_cnp());
  EXPECT_EQ(check_icrc(cnp.datagram).status, IcrcStatus::kGood);
  EXPECT_EQ(check_icrc(cnp.datagram).expected, 0x2a00fd82u);
}

// Every bit is covered but those that may change on the way.
TEST(IcrcCheck, NoticesEveryBitThatRoutersMayNotChange) {
  constexpr size_t kMayChange[] = {1, 8, 10, 11, 26, 27, 32};  // TOS, TTL, checksums, FECN and BECN
  const auto good = connectx_cnp();
  for (size_t byte = 0; byte < good.size(); ++byte) {
    const bool may_change = std::find(std::begin(kMayChange), std::end(kMayChange), byte) != std::end(kMayChange);
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = good;
      changed[byte] ^= static_cast<uint8_t>(1 << bit);
      if (changed[0] >> 4 != 4) continue;
      const Captured packet(changed);
      EXPECT_EQ(check_icrc(packet.datagram).status, may_change ? IcrcStatus::kGood : IcrcStatus::kBad) << byte;
    }
  }
}

TEST(IcrcCheck, SaysNothingAboutWhatWasNotCapturedWhole) {
  Captured cut(connectx_cnp());
  cut.datagram.ib = cut.datagram.ib.first(20);
  EXPECT_EQ(check_icrc(cut.datagram).status, IcrcStatus::kUnchecked);
  Captured no_ip(connectx_cnp());
  no_ip.datagram.ip = {};
  EXPECT_EQ(check_icrc(no_ip.datagram).status, IcrcStatus::kUnchecked);
}

// Packets without sense in a small space of numbers, so that they meet: answers without requests, requests backwards,
// READs of 2^31 bytes, everything cut anywhere.
class Hostile {
 public:
  explicit Hostile(uint64_t seed) : random_(seed) {}

  Datagram next(uint32_t frame) {
    bytes_.assign(12 + random_() % 60, 0);
    for (uint8_t& b : bytes_) b = static_cast<uint8_t>(random_());
    static constexpr uint8_t kBases[] = {0x00, 0x20, 0x60, 0x81, 0xa0, 0x40};
    bytes_[0] = static_cast<uint8_t>(kBases[random_() % 8 < 5 ? 0 : random_() % 6] + random_() % 0x1e);
    bytes_[1] &= chance(3) ? 0xff : 0xc0;
    wire::store_be24(&bytes_[5], 1 + static_cast<uint32_t>(random_() % 3));
    wire::store_be24(&bytes_[9], chance(50) ? static_cast<uint32_t>(random_()) : psn());
    if (bytes_.size() >= 28)
      wire::store_be32(&bytes_[24], chance(20) ? 0x80000000u : static_cast<uint32_t>(random_() % 9000));
    Datagram d;
    d.frame = frame;
    d.time = time_ += static_cast<int64_t>(random_() % 3000) - (chance(20) ? 4000 : 0);
    const uint8_t hosts[2][4] = {{10, 0, 0, 1}, {10, 0, 0, 2}};
    const bool forth = random_() % 2 == 0;
    d.source = wire::IpAddress::v4(hosts[forth ? 0 : 1]);
    d.destination = wire::IpAddress::v4(hosts[forth ? 1 : 0]);
    d.source_port = 0xc000;
    d.has_ip_id = !chance(4);
    d.ip_id = static_cast<uint16_t>(id_ += random_() % 4 == 0 ? static_cast<uint32_t>(random_() % 8) - 4 : 1);
    d.ib_size = static_cast<uint32_t>(bytes_.size());
    d.ib = std::span<const uint8_t>(bytes_).first(chance(10) ? random_() % bytes_.size() : bytes_.size());
    return d;
  }

 private:
  bool chance(uint32_t one_in) { return random_() % one_in == 0; }
  uint32_t psn() { return (0xffff00 + (walk_ += static_cast<uint32_t>(random_() % 5) - 1)) & wire::kMask24; }

  std::mt19937_64 random_;
  std::vector<uint8_t> bytes_;
  int64_t time_ = 0;
  uint32_t id_ = 0, walk_ = 0;
};

// A sender that ends a message at two PSNs: one message is completed, and the list of completed ones has an end.
TEST(Analysis, MessageThatEndsTwiceIsCompletedOnce) {
  Analysis analysis;
  uint32_t frame = 0;
  const auto add = [&](uint8_t opcode, uint32_t psn, bool forth) {
    std::vector<uint8_t> bytes(opcode == 0x11 ? 20 : 32);
    bytes[0] = opcode;
    bytes[2] = bytes[3] = 0xff;
    wire::store_be24(&bytes[5], forth ? 1 : 2);
    wire::store_be24(&bytes[9], psn);
    Datagram d;
    d.frame = ++frame;
    d.time = frame * 1000;
    const uint8_t hosts[2][4] = {{10, 0, 0, 1}, {10, 0, 0, 2}};
    d.source = wire::IpAddress::v4(hosts[forth ? 0 : 1]);
    d.destination = wire::IpAddress::v4(hosts[forth ? 1 : 0]);
    d.source_port = 0xc000;
    d.ib_size = static_cast<uint32_t>(bytes.size());
    d.ib = bytes;
    return analysis.add(d, parse_headers(d.ib, d.ib_size), false);
  };
  constexpr uint8_t kFirst = 0, kLast = 2, kAcknowledge = 0x11;
  add(kFirst, 100, true);
  add(kLast, 102, true);
  add(kLast, 101, true);
  const uint32_t answer = add(kAcknowledge, 102, false);
  int completed = 0;
  analysis.for_completed(analysis.packet(answer), [&](const MessageRecord&) { ASSERT_LE(++completed, 1); });
  EXPECT_EQ(completed, 1);
}

TEST(Analysis, SurvivesHostilePackets) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Hostile hostile(seed);
    Analysis analysis;
    for (uint32_t frame = 1; frame <= 5000; ++frame) {
      const Datagram datagram = hostile.next(frame);
      const Headers headers = parse_headers(datagram.ib, datagram.ib_size);
      ASSERT_LE(headers.parsed, datagram.ib.size());
      const PacketRecord& record = analysis.packet(analysis.add(datagram, headers, false));
      ASSERT_EQ(record.frame, frame);
      analysis.message(record);
      analysis.cnp(record, headers);
      analysis.source_qpn(record);
    }
    const auto range = analysis.of_frame(2500);
    EXPECT_EQ(range.first, 2499u);
    EXPECT_EQ(range.last, 2500u);
    EXPECT_EQ(analysis.of_frame(5001).first, analysis.of_frame(5001).last);
  }
}

}  // namespace
}  // namespace uroce::dissector

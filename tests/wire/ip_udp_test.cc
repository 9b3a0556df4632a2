// SPDX-License-Identifier: BSD-2-Clause
#include "wire/ip_udp.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <vector>

#include "tests/wire/hex.h"
#include "wire/icrc.h"

namespace uroce::wire {
namespace {

// The CNP of a ConnectX-4 Lx in wire.md "ICRC vectors", behind made-up MAC addresses.
const char* const kCnpEthernet = "020000000002 020000000001 0800";
const char* const kCnpIp = "45c2003c718c4000401191610a0011010a001201 000012b700280000";
const char* const kCnpIb = "8100ffff4000011800000000 00000000000000000000000000000000 82fd002a";

std::vector<uint8_t> cnp_frame() {
  return hex(std::string(kCnpEthernet) + kCnpIp + kCnpIb);
}

Envelope v4_envelope() {
  return {.source_mac = {2, 0, 0, 0, 0, 1},
          .destination_mac = {2, 0, 0, 0, 0, 2},
          .source = IpAddress::v4(hex("0a001101").data()),
          .destination = IpAddress::v4(hex("0a001201").data()),
          .source_port = 0xc123,
          .ip_id = 0x718c,
          .traffic_class = 0xc2,
          .hop_limit = 63};
}

Envelope v6_envelope() {
  Envelope e = v4_envelope();
  e.source = IpAddress::v6(hex("20010db8000000000000000000000001").data());
  e.destination = IpAddress::v6(hex("20010db8000000000000000000000002").data());
  e.ip_id = 0;
  e.flow_label = 0xabcde;
  return e;
}

// Headers for `envelope` and ib_size bytes behind them.
std::vector<uint8_t> make_frame(const Envelope& envelope, size_t ib_size) {
  std::vector<uint8_t> frame(frame_header_size(envelope) + ib_size, 0x5a);
  EXPECT_EQ(emit_frame_headers(envelope, static_cast<uint32_t>(8 + ib_size), frame.data()), frame.size() - ib_size);
  return frame;
}

FrameError parse(const std::vector<uint8_t>& frame) {
  Envelope envelope;
  std::span<const uint8_t> ib;
  return parse_frame(frame, envelope, ib);
}

// Makes the IPv4 header checksum right again after a change.
void fix_checksum(std::vector<uint8_t>& frame) {
  uint32_t sum = 0;
  store_be16(&frame[24], 0);
  for (size_t i = 14; i < 34; i += 2) sum += load_be16(&frame[i]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  store_be16(&frame[24], static_cast<uint16_t>(~sum));
}

void expect_same(const Envelope& a, const Envelope& b) {
  EXPECT_EQ(a.source_mac, b.source_mac);
  EXPECT_EQ(a.destination_mac, b.destination_mac);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.destination, b.destination);
  EXPECT_EQ(a.source_port, b.source_port);
  EXPECT_EQ(a.ip_id, b.ip_id);
  EXPECT_EQ(a.ip_id_known, b.ip_id_known);
  EXPECT_EQ(a.dont_fragment, b.dont_fragment);
  EXPECT_EQ(a.traffic_class, b.traffic_class);
  EXPECT_EQ(a.hop_limit, b.hop_limit);
  EXPECT_EQ(a.flow_label, b.flow_label);
}

TEST(ParseFrame, RealCnp) {
  const std::vector<uint8_t> frame = cnp_frame();
  Envelope envelope;
  std::span<const uint8_t> ib;
  ASSERT_EQ(parse_frame(frame, envelope, ib), FrameError::kNone);
  EXPECT_EQ(envelope.source.text(), "10.0.17.1");
  EXPECT_EQ(envelope.destination.text(), "10.0.18.1");
  EXPECT_EQ(envelope.ip_id, 0x718c);
  EXPECT_EQ(envelope.traffic_class, 0xc2);
  EXPECT_EQ(envelope.hop_limit, 64);
  EXPECT_TRUE(envelope.dont_fragment);
  EXPECT_TRUE(icrc_matches(envelope, ib));
}

TEST(EmitFrameHeaders, RealCnp) {
  Envelope envelope = v4_envelope();
  envelope.source_port = 0;
  envelope.hop_limit = 64;
  std::vector<uint8_t> out(42);
  ASSERT_EQ(emit_frame_headers(envelope, 40, out.data()), 42u);
  EXPECT_EQ(out, hex(std::string(kCnpEthernet) + kCnpIp));
}

// Sums that carry, once and again, are among them.
TEST(EmitFrameHeaders, ChecksumOfAnyIpv4Header) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    Envelope envelope = v4_envelope();
    const auto any = [&] { return random() % 4 == 0 ? 0xffffffff : static_cast<uint32_t>(random()); };
    store_be32(&envelope.source.bytes[12], any());
    store_be32(&envelope.destination.bytes[12], any());
    envelope.ip_id = static_cast<uint16_t>(any());
    envelope.traffic_class = static_cast<uint8_t>(any());
    envelope.hop_limit = static_cast<uint8_t>(any());
    envelope.dont_fragment = any() % 2 == 0;
    std::vector<uint8_t> out(42);
    emit_frame_headers(envelope, any() % 65000, out.data());
    std::vector<uint8_t> right = out;
    fix_checksum(right);
    ASSERT_EQ(out, right) << i;
    ASSERT_TRUE(Ipv4View::checked(std::span(out).subspan(14))->checksum_ok()) << i;
  }
}

TEST(EmitFrameHeaders, Ipv6) {
  std::vector<uint8_t> out(62);
  ASSERT_EQ(emit_frame_headers(v6_envelope(), 0x123, out.data()), 62u);
  EXPECT_EQ(out, hex("020000000002 020000000001 86dd 6c2abcde 0123 11 3f 20010db8000000000000000000000001"
                     "20010db8000000000000000000000002 c123 12b7 0123 0000"));
}

TEST(EmitFrameHeaders, ParsesBack) {
  for (Envelope envelope : {v4_envelope(), v6_envelope()}) {
    for (const bool dont_fragment : {true, false}) {
      if (is_v4(envelope)) envelope.dont_fragment = dont_fragment;
      const std::vector<uint8_t> frame = make_frame(envelope, 100);
      Envelope out;
      out.ip_id_known = false;
      std::span<const uint8_t> ib;
      ASSERT_EQ(parse_frame(frame, out, ib), FrameError::kNone);
      expect_same(out, envelope);
      EXPECT_EQ(ib.data(), frame.data() + frame_header_size(envelope));
      EXPECT_EQ(ib.size(), 100u);
    }
  }
}

TEST(EmitFrameHeaders, ChecksumIsRightForEveryId) {
  Envelope envelope = v4_envelope();
  for (uint32_t id = 0; id < 0x10000; ++id) {
    envelope.ip_id = static_cast<uint16_t>(id);
    uint8_t out[42];
    emit_frame_headers(envelope, 40, out);
    ASSERT_TRUE(Ipv4View::checked(std::span(out).subspan(14))->checksum_ok()) << id;
  }
}

TEST(ParseFrame, CutAtEveryByte) {
  for (const Envelope& envelope : {v4_envelope(), v6_envelope()}) {
    const std::vector<uint8_t> whole = make_frame(envelope, 20);
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_EQ(parse(cut), FrameError::kTruncated) << size;
    }
  }
}

TEST(ParseFrame, EthernetPaddingIsNotPayload) {
  std::vector<uint8_t> frame = make_frame(v4_envelope(), 16);
  frame.resize(frame.size() + 10);
  Envelope envelope;
  std::span<const uint8_t> ib;
  ASSERT_EQ(parse_frame(frame, envelope, ib), FrameError::kNone);
  EXPECT_EQ(ib.size(), 16u);
}

TEST(ParseFrame, OneVlanTagIsSkipped) {
  for (const Envelope& envelope : {v4_envelope(), v6_envelope()}) {
    std::vector<uint8_t> frame = make_frame(envelope, 20);
    const std::vector<uint8_t> tag = hex("8100 6005");
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    Envelope out;
    std::span<const uint8_t> ib;
    ASSERT_EQ(parse_frame(frame, out, ib), FrameError::kNone);
    expect_same(out, envelope);
    EXPECT_EQ(ib.size(), 20u);
    for (size_t size = 0; size < frame.size(); ++size) {
      EXPECT_EQ(parse({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)}), FrameError::kTruncated) << size;
    }
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    EXPECT_EQ(parse(frame), FrameError::kNotIp);
  }
}

TEST(ParseFrame, RefusesWhatIsNotPlainIpv4) {
  const std::vector<uint8_t> good = make_frame(v4_envelope(), 20);
  const auto with = [&](size_t offset, uint8_t value) {
    std::vector<uint8_t> frame = good;
    frame[offset] = value;
    fix_checksum(frame);
    return parse(frame);
  };
  EXPECT_EQ(with(12, 0x09), FrameError::kNotIp);
  EXPECT_EQ(with(14, 0x55), FrameError::kNotIp);
  EXPECT_EQ(with(14, 0x46), FrameError::kIpOptions);
  EXPECT_EQ(with(14, 0x44), FrameError::kIpOptions);
  EXPECT_EQ(with(20, 0x60), FrameError::kFragment);  // more fragments
  EXPECT_EQ(with(20, 0xc0), FrameError::kFragment);  // reserved flag
  EXPECT_EQ(with(21, 0x01), FrameError::kFragment);  // offset
  EXPECT_EQ(with(23, 6), FrameError::kNotUdp);
  EXPECT_EQ(with(37, 0xb6), FrameError::kNotRoce);
  EXPECT_EQ(with(17, 19), FrameError::kLengthMismatch);  // shorter than its own header
  EXPECT_EQ(with(17, 47), FrameError::kLengthMismatch);  // one less than UDP says
  EXPECT_EQ(with(39, 29), FrameError::kLengthMismatch);  // UDP one more than IP says
  EXPECT_EQ(with(39, 27), FrameError::kLengthMismatch);  // UDP one less than IP says
  EXPECT_EQ(with(17, 48), FrameError::kNone);
}

TEST(ParseFrame, UdpLengthIncludesItsHeader) {
  std::vector<uint8_t> frame = make_frame(v4_envelope(), 20);
  store_be16(&frame[16], 27);
  store_be16(&frame[38], 7);
  fix_checksum(frame);
  EXPECT_EQ(parse(frame), FrameError::kLengthMismatch);
}

TEST(ParseFrame, ChecksTheIpv4HeaderChecksum) {
  std::vector<uint8_t> frame = make_frame(v4_envelope(), 20);
  for (size_t bit = 8 * 15; bit < 8 * 34; ++bit) {  // without version and IHL
    frame[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_EQ(parse(frame), FrameError::kBadIpChecksum) << bit;
    frame[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
}

TEST(ParseFrame, RefusesWhatIsNotPlainIpv6) {
  const std::vector<uint8_t> good = make_frame(v6_envelope(), 20);
  const auto with = [&](size_t offset, uint8_t value) {
    std::vector<uint8_t> frame = good;
    frame[offset] = value;
    return parse(frame);
  };
  EXPECT_EQ(with(14, 0x4c), FrameError::kNotIp);
  EXPECT_EQ(with(20, 44), FrameError::kNotUdp);  // fragment header
  EXPECT_EQ(with(20, 0), FrameError::kNotUdp);   // hop-by-hop options
  EXPECT_EQ(with(19, 27), FrameError::kLengthMismatch);
  EXPECT_EQ(with(57, 0xb6), FrameError::kNotRoce);

  for (const size_t address : {22u, 38u}) {
    std::vector<uint8_t> mapped = good;
    const auto prefix = hex("00000000000000000000ffff");
    std::copy(prefix.begin(), prefix.end(), mapped.begin() + static_cast<ptrdiff_t>(address));
    EXPECT_EQ(parse(mapped), FrameError::kMappedAddress);
  }
}

TEST(ParseFrame, UdpChecksumIsNotLookedAt) {
  std::vector<uint8_t> frame = make_frame(v4_envelope(), 20);
  store_be16(&frame[40], 0x1234);
  EXPECT_EQ(parse(frame), FrameError::kNone);
}

TEST(ParseFrame, EveryErrorHasAText) {
  for (int error = 0; error <= static_cast<int>(FrameError::kMappedAddress); ++error) {
    EXPECT_GT(std::string(frame_error_text(static_cast<FrameError>(error))).size(), 1u);
  }
}

// --- the GRH area ----------------------------------------------------------------------------------------------------

std::optional<Envelope> through_grh_area(const Envelope& envelope) {
  std::array<uint8_t, kGrhSize> area;
  emit_grh_area(envelope, 300, area.data());
  return parse_grh_area(area);
}

TEST(GrhArea, SaysWhereADatagramCameFrom) {
  for (const Envelope& sent : {v4_envelope(), v6_envelope()}) {
    const auto read = through_grh_area(sent);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->source, sent.source);
    EXPECT_EQ(read->destination, sent.destination);
    EXPECT_EQ(read->traffic_class, sent.traffic_class);
    EXPECT_EQ(read->hop_limit, sent.hop_limit);
    EXPECT_EQ(read->flow_label, sent.flow_label);
  }
}

// What is in front of IPv4's header is undefined; the bytes of IPv6 addresses may look like a header of IPv4, but for
// its checksum.
TEST(GrhArea, TheChecksumTellsTheVersions) {
  std::array<uint8_t, kGrhSize> area;
  emit_grh_area(v4_envelope(), 300, area.data());
  std::fill_n(area.begin(), 20, uint8_t{0x66});
  ASSERT_TRUE(parse_grh_area(area));
  EXPECT_TRUE(parse_grh_area(area)->destination.is_v4());

  Envelope v6 = v6_envelope();
  v6.source.bytes[12] = 0x45;
  EXPECT_EQ(through_grh_area(v6)->source, v6.source);
  area.fill(0);
  EXPECT_FALSE(parse_grh_area(area));
}

}  // namespace
}  // namespace uroce::wire

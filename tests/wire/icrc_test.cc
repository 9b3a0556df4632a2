// SPDX-License-Identifier: BSD-2-Clause
#include "wire/icrc.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/wire/hex.h"
#include "wire/bytes.h"
#include "wire/crc32.h"

namespace uroce::wire {
namespace {

struct Vector {
  const char* name;
  Envelope envelope;
  std::vector<uint8_t> ib;  // with ICRC
};

std::vector<uint8_t> operator+(std::vector<uint8_t> a, const std::vector<uint8_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The three of wire.md "ICRC vectors".
const std::vector<Vector>& golden_vectors() {
  static const std::vector<Vector> vectors = [] {
    const auto uc_send = hex("2460ffff 000000d3 00cf1710 4630818be28935d90e9a95505401be885e500000");
    Envelope cnp{.source = IpAddress::v4(hex("0a001101").data()),
                 .destination = IpAddress::v4(hex("0a001201").data()),
                 .source_port = 0,
                 .ip_id = 0x718c,
                 .traffic_class = 0xc2,
                 .hop_limit = 64};
    Envelope v4{.source = IpAddress::v4(hex("c0a80007").data()),
                .destination = IpAddress::v4(hex("c0a80007").data()),
                .source_port = 0xc000,
                .ip_id = 0x0478,
                .traffic_class = 1,
                .hop_limit = 64};
    Envelope v6{.source = IpAddress::v6(hex("20220000000000000000000000001023").data()),
                .destination = IpAddress::v6(hex("20230000000000000000000000001024").data()),
                .source_port = 0xc000,
                .traffic_class = 226,
                .hop_limit = 255,
                .flow_label = 0x1face};
    return std::vector<Vector>{{"CNP of a ConnectX-4 Lx", cnp,
                                hex("8100ffff4000011800000000") + std::vector<uint8_t>(16, 0) + hex("82fd002a")},
                               {"UC SEND over IPv4", v4, uc_send + hex("78f353f3")},
                               {"UC SEND over IPv6", v6, uc_send + hex("3e5b743b")}};
  }();
  return vectors;
}

std::span<const uint8_t> without_icrc(const std::vector<uint8_t>& ib) {
  return std::span(ib).first(ib.size() - 4);
}

// A random packet of `size` bytes behind the BTH, with its right ICRC.
Vector random_packet(std::mt19937& random, bool v4, size_t size) {
  std::vector<uint8_t> bytes(32 + 12 + size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto address = [&](const uint8_t* p) { return v4 ? IpAddress::v4(p) : IpAddress::v6(p); };
  Vector v{"random",
           Envelope{.source = address(&bytes[0]),
                    .destination = address(&bytes[16]),
                    .source_port = static_cast<uint16_t>(random()),
                    .ip_id = static_cast<uint16_t>(random()),
                    .dont_fragment = random() % 2 == 0,
                    .traffic_class = static_cast<uint8_t>(random()),
                    .hop_limit = static_cast<uint8_t>(random()),
                    .flow_label = static_cast<uint32_t>(random()) & 0xfffff},
           {bytes.begin() + 32, bytes.end()}};
  const uint32_t value = icrc_reference(v.envelope, v.ib);
  v.ib.resize(v.ib.size() + 4);
  store_le32(&v.ib[v.ib.size() - 4], value);
  return v;
}

TEST(Icrc, SeedIsTheRegisterAfterTheDummyLrh) {
  const std::vector<uint8_t> lrh(8, 0xff);
  EXPECT_EQ(crc32_update_reference(0xffffffff, lrh.data(), lrh.size()), kIcrcSeed);
}

TEST(Icrc, GoldenVectors) {
  for (const Vector& v : golden_vectors()) {
    SCOPED_TRACE(v.name);
    const uint32_t expected = load_le32(&v.ib[v.ib.size() - 4]);
    EXPECT_EQ(icrc(v.envelope, without_icrc(v.ib)), expected);
    EXPECT_EQ(icrc_reference(v.envelope, without_icrc(v.ib)), expected);
    EXPECT_TRUE(icrc_matches(v.envelope, v.ib));
  }
}

// As a sender does, who has the headers apart from the payload. What lies behind the headers does not count.
TEST(Icrc, OfHeadersOfEverySizeAndAPayload) {
  std::mt19937 random(2);
  for (size_t size = 12; size <= kIcrcHeaderRoom; ++size) {
    for (const bool v4 : {true, false}) {
      const Vector v = random_packet(random, v4, 100);
      std::array<uint8_t, kIcrcHeaderRoom> headers;
      headers.fill(0xee);
      std::copy_n(v.ib.begin(), size, headers.begin());
      uint32_t state = icrc_headers(v.envelope, static_cast<uint32_t>(8 + v.ib.size()), headers, size);
      state = crc32_update(state, v.ib.data() + size, v.ib.size() - 4 - size);
      EXPECT_EQ(icrc_finish(state), icrc_reference(v.envelope, without_icrc(v.ib))) << size << (v4 ? " v4" : " v6");
    }
  }
}

TEST(Icrc, AgreesWithTheReferenceAtEveryLength) {
  std::mt19937 random(1);
  for (size_t size = 0; size <= 5000; ++size) {
    const Vector v = random_packet(random, size % 2 == 0, size);
    ASSERT_TRUE(icrc_matches(v.envelope, v.ib)) << size;
    std::vector<uint8_t> misaligned(size % 16, 0);
    misaligned.insert(misaligned.end(), v.ib.begin(), v.ib.end());
    ASSERT_TRUE(icrc_matches(v.envelope, std::span(misaligned).subspan(size % 16))) << size;
  }
}

TEST(Icrc, EveryFlippedBitIsDetectedExceptThoseOfEcn) {
  for (Vector v : golden_vectors()) {
    SCOPED_TRACE(v.name);
    for (size_t bit = 0; bit < 8 * v.ib.size(); ++bit) {
      v.ib[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const bool is_masked = bit / 8 == 4;  // FECN, BECN and the reserved bits beside them
      EXPECT_EQ(icrc_matches(v.envelope, v.ib), is_masked) << bit;
      v.ib[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

TEST(Icrc, CoversWhatRoutersMayNotChange) {
  for (const Vector& v : golden_vectors()) {
    SCOPED_TRACE(v.name);
    const auto matches_after = [&](auto change) {
      Envelope envelope = v.envelope;
      change(envelope);
      return icrc_matches(envelope, v.ib);
    };
    const bool v4 = v.envelope.source.is_v4();
    for (size_t byte = v4 ? 12 : 0; byte < 16; ++byte) {
      EXPECT_FALSE(matches_after([&](Envelope& e) { e.source.bytes[byte] ^= 0x10; }));
      EXPECT_FALSE(matches_after([&](Envelope& e) { e.destination.bytes[byte] ^= 0x10; }));
    }
    EXPECT_FALSE(matches_after([](Envelope& e) { e.source_port ^= 1; }));
    EXPECT_EQ(matches_after([](Envelope& e) { e.ip_id ^= 1; }), !v4);
    EXPECT_EQ(matches_after([](Envelope& e) { e.dont_fragment = false; }), !v4);
    EXPECT_TRUE(matches_after([](Envelope& e) { e.traffic_class = 3; }));
    EXPECT_TRUE(matches_after([](Envelope& e) { e.hop_limit = 1; }));
    EXPECT_TRUE(matches_after([](Envelope& e) { e.flow_label = 9; }));
    EXPECT_TRUE(matches_after([](Envelope& e) { e.source_mac[0] = 9; }));
  }
}

TEST(Icrc, LengthsCount) {
  std::mt19937 random(2);
  const Vector v = random_packet(random, true, 64);
  for (size_t cut = 0; cut < v.ib.size(); ++cut) {
    const std::vector<uint8_t> shorter(v.ib.begin(), v.ib.begin() + static_cast<ptrdiff_t>(cut));
    EXPECT_FALSE(icrc_matches(v.envelope, shorter)) << cut;
  }
}

TEST(IcrcWithUnknownId, AcceptsEveryId) {
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 20, 1024, 4096 + 16}) {
    Vector v = random_packet(random, true, size);
    for (uint32_t id = 0; id<0x10000; id += size> 100 ? 251 : 1) {
      v.envelope.ip_id = static_cast<uint16_t>(id);
      v.envelope.ip_id_known = true;
      const size_t covered = v.ib.size() - 4;
      store_le32(&v.ib[covered], icrc(v.envelope, std::span(v.ib).first(covered)));
      v.envelope.ip_id = 0;
      v.envelope.ip_id_known = false;
      ASSERT_TRUE(icrc_matches(v.envelope, v.ib)) << "size " << size << " id " << id;
    }
  }
}

TEST(IcrcWithUnknownId, RejectsEveryFlippedBitOfThesePackets) {
  for (Vector v : golden_vectors()) {
    SCOPED_TRACE(v.name);
    v.envelope.ip_id_known = false;
    v.envelope.ip_id = 0;
    EXPECT_TRUE(icrc_matches(v.envelope, v.ib));
    for (size_t bit = 0; bit < 8 * v.ib.size(); ++bit) {
      if (bit / 8 == 4) continue;
      v.ib[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      EXPECT_FALSE(icrc_matches(v.envelope, v.ib)) << bit;
      v.ib[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

TEST(IcrcWithUnknownId, LetsOneOf65536RandomCorruptionsPass) {
  std::mt19937 random(4);
  Vector v = random_packet(random, true, 64);
  v.envelope.ip_id_known = false;
  constexpr int kTrials = 1 << 21;
  int passed = 0;
  for (int i = 0; i < kTrials; ++i) {
    store_le32(&v.ib[v.ib.size() - 4], static_cast<uint32_t>(random()));
    passed += icrc_matches(v.envelope, v.ib);
  }
  EXPECT_GE(passed, 14);  // 32 expected; 64 or 16 if it were 15 or 17 bits
  EXPECT_LE(passed, 48);
}

TEST(IcrcWithUnknownId, ChecksAllOfIpv6) {
  std::mt19937 random(5);
  Vector v = random_packet(random, false, 64);
  v.envelope.ip_id_known = false;
  ASSERT_TRUE(icrc_matches(v.envelope, v.ib));
  for (int i = 0; i < 1 << 18; ++i) {
    store_le32(&v.ib[v.ib.size() - 4], static_cast<uint32_t>(random()));
    ASSERT_FALSE(icrc_matches(v.envelope, v.ib));
  }
}

TEST(IcrcWithUnknownId, TakesDontFragmentFromTheEnvelope) {
  std::mt19937 random(6);
  Vector v = random_packet(random, true, 64);
  v.envelope.ip_id_known = false;
  ASSERT_TRUE(icrc_matches(v.envelope, v.ib));
  v.envelope.dont_fragment = !v.envelope.dont_fragment;
  EXPECT_FALSE(icrc_matches(v.envelope, v.ib));
}

}  // namespace
}  // namespace uroce::wire

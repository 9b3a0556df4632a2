// SPDX-License-Identifier: BSD-2-Clause
#include "wire/icrc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <vector>

#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/crc32.h"
#include "wire/crc32_polynomial.h"
#include "wire/ip_udp.h"

namespace uroce::wire {
namespace {

constexpr size_t kDummyLrhSize = 8;
constexpr size_t kBthMaskedByte = 4;  // FECN, BECN and reserved bits

// Two big-endian words side by side in a vector register. The CRC reads its input in units of 16 bytes; it would wait
// for the cache if the bytes had been stored in narrower ones a moment ago.
using WordPair __attribute__((vector_size(16))) = uint64_t;

uint64_t in_network_order(uint64_t value) {
  std::array<uint8_t, 8> bytes;
  store_be64(bytes.data(), value);
  return std::bit_cast<uint64_t>(bytes);
}

WordPair pair(uint64_t first, uint64_t second) {
  return WordPair{in_network_order(first), in_network_order(second)};
}

constexpr WordPair kBthMask = {uint64_t{0xff} << 8 * kBthMaskedByte, 0};

// What a BTH's masked byte changes: kMaskedByte[b] is to be added to the state in front of the BTH when the byte counts
// as 0xff instead of b. A CRC is linear: the difference of the bytes, as it is in the register after the fifth byte of
// the BTH, divided by x^40 to get in front.
constexpr std::array<uint32_t, 256> kMaskedByte = [] {
  constexpr uint32_t kToTheFront = polynomial::inverse_power(40);
  std::array<uint32_t, 256> states{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t difference = b ^ 0xff;
    for (int bit = 0; bit < 8; ++bit) difference = polynomial::times_x(difference);
    states[b] = polynomial::multiply(difference, kToTheFront);
  }
  return states;
}();

uint32_t udp_length_of(std::span<const uint8_t> ib_without_icrc) {
  return static_cast<uint32_t>(kUdpSize + ib_without_icrc.size() + kIcrcSize);
}

// x^(-8 * 2^i): what undoes reading 2^i bytes.
constexpr std::array<uint32_t, 16> kUnreadBytes = [] {
  std::array<uint32_t, 16> powers{};
  for (uint32_t i = 0; i < powers.size(); ++i) powers[i] = polynomial::inverse_power(8u << i);
  return powers;
}();

// If two ICRCs can differ by `difference` because of the IPv4 ID alone, the difference of the IDs; else nullopt. An ID,
// as a polynomial D below x^16, is followed by n bytes: the rest of the IP header, UDP, and the IB part. It adds D *
// x^(32 + 8n) to the register, so dividing by x^(32 + 8n) must give such a D, with nothing in the upper coefficients.
std::optional<uint16_t> difference_of_ids(uint32_t difference, size_t ib_size) {
  constexpr size_t kIpAfterId = kIpv4Size - 6;
  uint32_t d = difference;
  size_t bytes = 4 + kIpAfterId + kUdpSize + ib_size;
  for (const uint32_t unread : kUnreadBytes) {
    if (bytes & 1) d = polynomial::multiply(d, unread);
    bytes >>= 1;
  }
  if (bytes != 0 || (d & 0xffff) != 0) return std::nullopt;
  const uint32_t id = d >> 16;  // its first byte lowest, as bytes enter the register
  return static_cast<uint16_t>(id << 8 | id >> 8);
}

// The headers in front of the BTH as whole words, and the state that the first of them enters. After four of the eight
// bytes of the dummy LRH the state is 0; with the other four the headers of IPv4 fill whole words.
struct MaskedHeaders {
  uint32_t state;
  size_t count;
  std::array<WordPair, 3> words;
};

MaskedHeaders masked_headers(const Envelope& envelope, uint32_t udp_length) {
  const uint64_t udp = uint64_t{envelope.source_port} << 48 | uint64_t{kRoceUdpPort} << 32 | udp_length << 16 | 0xffff;
  const uint8_t* source = envelope.source.bytes.data();
  const uint8_t* destination = envelope.destination.bytes.data();
  if (is_v4(envelope)) {
    const uint64_t flags = envelope.dont_fragment ? 0x4000 : 0;
    return {0,
            2,
            {pair(0xffffffff'45ff0000 | (kIpv4Size + udp_length),
                  uint64_t{envelope.ip_id} << 48 | flags << 32 | 0xff11ffff),
             pair(uint64_t{load_be32(source + 12)} << 32 | load_be32(destination + 12), udp)}};
  }
  return {kIcrcSeed,
          3,
          {pair(0x6fffffff'000011ff | udp_length << 16, load_be64(source)),
           pair(load_be64(source + 8), load_be64(destination)), pair(load_be64(destination + 8), udp)}};
}

}  // namespace

uint32_t icrc_start(const Envelope& envelope, uint32_t udp_length) {
  const MaskedHeaders headers = masked_headers(envelope, udp_length);
  return crc32_update(headers.state, reinterpret_cast<const uint8_t*>(headers.words.data()),
                      headers.count * sizeof(WordPair));
}

uint32_t icrc_headers(const Envelope& envelope, uint32_t udp_length,
                      std::span<const uint8_t, kIcrcHeaderRoom> transport, size_t size) {
  assert(size >= Bth::kSize && size <= transport.size());
  // One pass over all of it: each pass has an end that takes as long as a hundred bytes.
  const MaskedHeaders headers = masked_headers(envelope, udp_length);
  std::array<WordPair, 3 + kIcrcHeaderRoom / sizeof(WordPair)> words;
  std::copy(headers.words.begin(), headers.words.end(), words.begin());
  std::memcpy(&words[headers.count], transport.data(), transport.size());
  words[headers.count] |= kBthMask;
  return crc32_update(headers.state, reinterpret_cast<const uint8_t*>(words.data()),
                      headers.count * sizeof(WordPair) + size);
}

uint32_t icrc(const Envelope& envelope, std::span<const uint8_t> ib_without_icrc) {
  assert(ib_without_icrc.size() >= Bth::kSize);
  const uint32_t state = icrc_start(envelope, udp_length_of(ib_without_icrc));
  // BTH and the rest in one pass.
  return icrc_finish(crc32_update(state ^ kMaskedByte[ib_without_icrc[kBthMaskedByte]], ib_without_icrc.data(),
                                  ib_without_icrc.size()));
}

uint32_t icrc_reference(const Envelope& envelope, std::span<const uint8_t> ib_without_icrc) {
  // The packet as it would be sent, then every field masked where it stands.
  std::array<uint8_t, kMaxFrameHeaderSize> frame;
  const size_t frame_size = emit_frame_headers(envelope, udp_length_of(ib_without_icrc), frame.data());

  std::vector<uint8_t> pseudo(kDummyLrhSize, 0xff);
  pseudo.insert(pseudo.end(), frame.data() + kEthernetSize, frame.data() + frame_size);
  uint8_t* ip = &pseudo[kDummyLrhSize];
  if (is_v4(envelope)) {
    ip[1] = 0xff;            // TOS
    ip[8] = 0xff;            // TTL
    ip[10] = ip[11] = 0xff;  // header checksum
  } else {
    ip[0] |= 0x0f;                 // traffic class
    ip[1] = ip[2] = ip[3] = 0xff;  // traffic class, flow label
    ip[7] = 0xff;                  // hop limit
  }
  pseudo[pseudo.size() - 2] = pseudo[pseudo.size() - 1] = 0xff;  // UDP checksum
  const size_t bth = pseudo.size();
  pseudo.insert(pseudo.end(), ib_without_icrc.begin(), ib_without_icrc.end());
  pseudo[bth + kBthMaskedByte] = 0xff;
  return ~crc32_update_reference(0xffffffff, pseudo.data(), pseudo.size());
}

bool icrc_matches(const Envelope& envelope, std::span<const uint8_t> ib) {
  return icrc_ip_id(envelope, ib).has_value();
}

std::optional<uint16_t> icrc_ip_id(const Envelope& envelope, std::span<const uint8_t> ib) {
  if (ib.size() < Bth::kSize + kIcrcSize) return std::nullopt;
  const auto covered = ib.first(ib.size() - kIcrcSize);
  const uint32_t received = load_le32(covered.data() + covered.size());

  // With the ID unknown any one will do as a base. Backends leave it 0, which Linux sends: then the plain comparison
  // fits.
  const uint32_t difference = received ^ icrc(envelope, covered);
  if (difference == 0) return envelope.ip_id;
  if (envelope.ip_id_known || !is_v4(envelope)) return std::nullopt;
  const std::optional<uint16_t> other = difference_of_ids(difference, covered.size());
  return other ? std::optional(static_cast<uint16_t>(envelope.ip_id ^ *other)) : std::nullopt;
}

}  // namespace uroce::wire

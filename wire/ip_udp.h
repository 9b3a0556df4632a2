// SPDX-License-Identifier: BSD-2-Clause
// Ethernet, IP and UDP around a RoCE v2 packet: taking a frame apart into Envelope and InfiniBand bytes, and writing
// the headers for an Envelope. Used by the backends that see frames (AF_XDP, memory link, capture) and by the
// dissector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/bytes.h"
#include "wire/envelope.h"
#include "wire/header_view.h"

namespace uroce::wire {

inline constexpr size_t kEthernetSize = 14;
inline constexpr size_t kVlanTagSize = 4;
inline constexpr size_t kIpv4Size = 20;  // without options: RoCE v2 has none (IBTA annex A17)
inline constexpr size_t kIpv6Size = 40;
inline constexpr size_t kUdpSize = 8;
inline constexpr size_t kMaxFrameHeaderSize = kEthernetSize + kIpv6Size + kUdpSize;
inline constexpr uint8_t kIpProtocolUdp = 17;

class Ipv4View : public HeaderView<Ipv4View, kIpv4Size> {
 public:
  constexpr uint8_t version() const { return bytes_[0] >> 4; }
  constexpr uint8_t header_words() const { return bytes_[0] & 0x0f; }
  constexpr uint8_t traffic_class() const { return bytes_[1]; }
  constexpr uint16_t total_length() const { return load_be16(bytes_ + 2); }
  constexpr uint16_t id() const { return load_be16(bytes_ + 4); }
  constexpr bool dont_fragment() const { return bytes_[6] & 0x40; }
  constexpr uint16_t flags_and_offset() const { return load_be16(bytes_ + 6); }
  constexpr uint8_t ttl() const { return bytes_[8]; }
  constexpr uint8_t protocol() const { return bytes_[9]; }
  constexpr const uint8_t* source() const { return bytes_ + 12; }
  constexpr const uint8_t* destination() const { return bytes_ + 16; }
  // True if the header's checksum is right (RFC 791).
  bool checksum_ok() const;
};

class Ipv6View : public HeaderView<Ipv6View, kIpv6Size> {
 public:
  constexpr uint8_t version() const { return bytes_[0] >> 4; }
  constexpr uint8_t traffic_class() const { return static_cast<uint8_t>(load_be16(bytes_) >> 4); }
  constexpr uint32_t flow_label() const { return load_be32(bytes_) & 0xfffff; }
  constexpr uint16_t payload_length() const { return load_be16(bytes_ + 4); }
  constexpr uint8_t next_header() const { return bytes_[6]; }
  constexpr uint8_t hop_limit() const { return bytes_[7]; }
  constexpr const uint8_t* source() const { return bytes_ + 8; }
  constexpr const uint8_t* destination() const { return bytes_ + 24; }
};

class UdpView : public HeaderView<UdpView, kUdpSize> {
 public:
  constexpr uint16_t source_port() const { return load_be16(bytes_); }
  constexpr uint16_t destination_port() const { return load_be16(bytes_ + 2); }
  constexpr uint16_t length() const { return load_be16(bytes_ + 4); }
};

enum class FrameError : uint8_t {
  kNone,
  kTruncated,  // shorter than its headers, or than the lengths in them say
  kNotIp,      // EtherType, IP version, or more than one VLAN tag
  kIpOptions,  // IPv4 options; IPv6 extension headers show as kNotUdp
  kBadIpChecksum,
  kFragment,  // a fragment, or the reserved flag is set
  kNotUdp,
  kNotRoce,         // another UDP destination port
  kLengthMismatch,  // IP and UDP disagree
  kMappedAddress,   // an IPv4-mapped address in an IPv6 header must not be on the wire (RFC 4038 4.2)
};

const char* frame_error_text(FrameError error);  // "IP and UDP length differ"

// Ethernet II, at most one 802.1Q tag (skipped: the netdev knows its VLAN), IPv4 without options and fragments or IPv6
// without extension headers, UDP to port 4791. The frame may be longer than IP says: Ethernet pads short ones. The UDP
// checksum is not looked at: over virtual links it may hold only the pseudo-header sum, the ICRC decides (wire.md
// "IP and UDP"). On success `ib` is the UDP payload, inside `frame`; on failure `out` and `ib` are unspecified.
FrameError parse_frame(std::span<const uint8_t> frame, Envelope& out, std::span<const uint8_t>& ib);

// The addresses decide: IPv4 if the destination is a mapped one.
inline bool is_v4(const Envelope& envelope) {
  return envelope.destination.is_v4();
}

// Writes the checksum of an IPv4 header (RFC 791).
void set_ipv4_checksum(uint8_t* header);

// Ethernet, IP and UDP together: 42 or 62 bytes.
inline size_t frame_header_size(const Envelope& envelope) {
  return kEthernetSize + (is_v4(envelope) ? kIpv4Size : kIpv6Size) + kUdpSize;
}

// Writes frame_header_size() bytes and returns that number. udp_length: UDP header to ICRC, at most 65515. IPv4 header
// checksum is filled in, UDP checksum is 0 as native endpoints send it (also on IPv6).
size_t emit_frame_headers(const Envelope& envelope, uint32_t udp_length, uint8_t* out);

// What stands in front of a UD payload in the receive buffer: the IPv6 header, or 20 zero bytes and the IPv4 header
// (IBTA A17.4.5.1).
inline constexpr size_t kGrhSize = 40;
void emit_grh_area(const Envelope& envelope, uint32_t udp_length, uint8_t* out);
// The addresses, traffic class, hop limit and flow label in it. Nothing: it begins with no header of either version.
std::optional<Envelope> parse_grh_area(std::span<const uint8_t, kGrhSize> area);

}  // namespace uroce::wire

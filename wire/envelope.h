// SPDX-License-Identifier: BSD-2-Clause
// What surrounds the InfiniBand part of a RoCE v2 packet: Ethernet, IP and UDP header values.
// A received packet is described by one, and a QP keeps one ready for everything it sends.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace uroce::wire {

constexpr uint16_t kRoceUdpPort = 4791;  // IBTA annex A17

// The two low bits of the traffic class (RFC 3168).
constexpr uint8_t kEcnMask = 3;
constexpr uint8_t kEcnEct0 = 2;                           // the sender reacts to congestion
constexpr uint8_t kEcnCe = 3;                             // a switch was congested
constexpr uint8_t kCnpTrafficClass = 48 << 2 | kEcnEct0;  // as ConnectX sends CNPs (wire.md)

using MacAddress = std::array<uint8_t, 6>;

// An IPv6 address, or an IPv4 address in its mapped form ::ffff:a.b.c.d. The same 16 bytes are the RoCE v2 GID.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  static IpAddress v4(const uint8_t* four) {
    IpAddress a;
    a.bytes[10] = a.bytes[11] = 0xff;
    std::memcpy(&a.bytes[12], four, 4);
    return a;
  }
  static IpAddress v6(const uint8_t* sixteen) {
    IpAddress a;
    std::memcpy(a.bytes.data(), sixteen, 16);
    return a;
  }
  bool is_v4() const {
    static constexpr uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), prefix, 12) == 0;
  }
  bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  bool is_multicast() const { return is_v4() ? (v4_bytes()[0] & 0xf0) == 0xe0 : bytes[0] == 0xff; }
  bool is_unspecified() const { return bytes == std::array<uint8_t, 16>{}; }
  const uint8_t* v4_bytes() const { return &bytes[12]; }
  std::string text() const;  // "192.0.2.1" or "fe80::1"

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

struct Envelope {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  IpAddress source;
  IpAddress destination;
  uint16_t source_port = 0;   // entropy for ECMP; the destination port is always 4791
  uint16_t ip_id = 0;         // IPv4 identification, covered by the ICRC
  bool ip_id_known = true;    // false: received through a UDP socket, which hides the IP header
  bool dont_fragment = true;  // IPv4 DF, covered by the ICRC
  uint8_t traffic_class = 0;  // DSCP and ECN
  uint8_t hop_limit = 64;     // TTL
  uint32_t flow_label = 0;    // IPv6, 20 bits
};

}  // namespace uroce::wire

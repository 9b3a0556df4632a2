// SPDX-License-Identifier: BSD-2-Clause
#include "wire/ip_udp.h"

#include <algorithm>

namespace uroce::wire {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeVlan = 0x8100;
constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr uint16_t kDontFragment = 0x4000;

// A one's complement sum of 16-bit words (RFC 1071), which were added four side by side: sum < 2^48.
constexpr uint16_t folded(uint64_t sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>((sum & 0xffff) + (sum >> 16));
}

// Over an IPv4 header: 0xffff if its checksum is right.
constexpr uint16_t ipv4_header_sum(const uint8_t* header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kIpv4Size; i += 4) sum += load_be32(header + i);
  return folded(sum);
}

// Both return the size that IP announces behind its header in `payload_size`.
FrameError parse_ipv4(std::span<const uint8_t> packet, Envelope& out, size_t& payload_size) {
  const auto ip = Ipv4View::checked(packet);
  if (!ip) return FrameError::kTruncated;
  if (ip->version() != 4) return FrameError::kNotIp;
  if (ip->header_words() != kIpv4Size / 4) return FrameError::kIpOptions;
  if (!ip->checksum_ok()) return FrameError::kBadIpChecksum;
  if ((ip->flags_and_offset() & ~kDontFragment) != 0) return FrameError::kFragment;
  if (ip->protocol() != kIpProtocolUdp) return FrameError::kNotUdp;
  if (ip->total_length() < kIpv4Size) return FrameError::kLengthMismatch;

  out.source = IpAddress::v4(ip->source());
  out.destination = IpAddress::v4(ip->destination());
  out.ip_id = ip->id();
  out.dont_fragment = ip->dont_fragment();
  out.traffic_class = ip->traffic_class();
  out.hop_limit = ip->ttl();
  out.flow_label = 0;
  payload_size = ip->total_length() - kIpv4Size;
  return FrameError::kNone;
}

FrameError parse_ipv6(std::span<const uint8_t> packet, Envelope& out, size_t& payload_size) {
  const auto ip = Ipv6View::checked(packet);
  if (!ip) return FrameError::kTruncated;
  if (ip->version() != 6) return FrameError::kNotIp;
  if (ip->next_header() != kIpProtocolUdp) return FrameError::kNotUdp;

  out.source = IpAddress::v6(ip->source());
  out.destination = IpAddress::v6(ip->destination());
  if (out.source.is_v4() || out.destination.is_v4()) return FrameError::kMappedAddress;
  out.ip_id = 0;
  out.dont_fragment = true;
  out.traffic_class = ip->traffic_class();
  out.hop_limit = ip->hop_limit();
  out.flow_label = ip->flow_label();
  payload_size = ip->payload_length();
  return FrameError::kNone;
}

void emit_ipv4(const Envelope& envelope, uint32_t udp_length, uint8_t* out) {
  const uint32_t version_to_length = 0x45000000 | uint32_t{envelope.traffic_class} << 16 | (kIpv4Size + udp_length);
  const uint32_t id_to_offset = uint32_t{envelope.ip_id} << 16 | (envelope.dont_fragment ? kDontFragment : 0);
  const uint32_t ttl_and_protocol = uint32_t{envelope.hop_limit} << 8 | kIpProtocolUdp;
  const uint32_t source = load_be32(envelope.source.v4_bytes()),
                 destination = load_be32(envelope.destination.v4_bytes());
  // From the fields, not from the bytes: these would have to be waited for, as they have just been stored.
  const uint64_t sum =
      uint64_t{version_to_length} + id_to_offset + (uint64_t{ttl_and_protocol} << 16) + source + destination;
  store_be32(out, version_to_length);
  store_be32(out + 4, id_to_offset);
  store_be32(out + 8, ttl_and_protocol << 16 | static_cast<uint16_t>(~folded(sum)));
  store_be32(out + 12, source);
  store_be32(out + 16, destination);
}

void emit_ipv6(const Envelope& envelope, uint32_t udp_length, uint8_t* out) {
  store_be32(out, 6u << 28 | uint32_t{envelope.traffic_class} << 20 | (envelope.flow_label & 0xfffff));
  store_be16(out + 4, static_cast<uint16_t>(udp_length));
  out[6] = kIpProtocolUdp;
  out[7] = envelope.hop_limit;
  std::copy_n(envelope.source.bytes.data(), 16, out + 8);
  std::copy_n(envelope.destination.bytes.data(), 16, out + 24);
}

}  // namespace

bool Ipv4View::checksum_ok() const {
  return ipv4_header_sum(bytes_) == 0xffff;
}

FrameError parse_frame(std::span<const uint8_t> frame, Envelope& out, std::span<const uint8_t>& ib) {
  if (frame.size() < kEthernetSize) return FrameError::kTruncated;
  std::copy_n(frame.data(), 6, out.destination_mac.data());
  std::copy_n(frame.data() + 6, 6, out.source_mac.data());

  size_t ip_offset = kEthernetSize;
  if (load_be16(&frame[ip_offset - 2]) == kEtherTypeVlan) {
    ip_offset += kVlanTagSize;
    if (frame.size() < ip_offset) return FrameError::kTruncated;
  }
  const uint16_t ether_type = load_be16(&frame[ip_offset - 2]);
  const bool v4 = ether_type == kEtherTypeIpv4;
  if (!v4 && ether_type != kEtherTypeIpv6) return FrameError::kNotIp;

  const auto packet = frame.subspan(ip_offset);
  size_t ip_payload_size;
  const FrameError error = v4 ? parse_ipv4(packet, out, ip_payload_size) : parse_ipv6(packet, out, ip_payload_size);
  if (error != FrameError::kNone) return error;

  const auto datagram = packet.subspan(v4 ? kIpv4Size : kIpv6Size);
  const auto udp = UdpView::checked(datagram);
  if (!udp) return FrameError::kTruncated;
  if (udp->destination_port() != kRoceUdpPort) return FrameError::kNotRoce;
  if (udp->length() < kUdpSize || udp->length() != ip_payload_size) return FrameError::kLengthMismatch;
  if (datagram.size() < udp->length()) return FrameError::kTruncated;

  out.source_port = udp->source_port();
  out.ip_id_known = true;
  ib = datagram.subspan(kUdpSize, udp->length() - kUdpSize);
  return FrameError::kNone;
}

void set_ipv4_checksum(uint8_t* header) {
  store_be16(header + 10, 0);
  store_be16(header + 10, static_cast<uint16_t>(~ipv4_header_sum(header)));
}

size_t emit_frame_headers(const Envelope& envelope, uint32_t udp_length, uint8_t* out) {
  const bool v4 = is_v4(envelope);
  std::copy_n(envelope.destination_mac.data(), 6, out);
  std::copy_n(envelope.source_mac.data(), 6, out + 6);
  store_be16(out + 12, v4 ? kEtherTypeIpv4 : kEtherTypeIpv6);

  uint8_t* ip = out + kEthernetSize;
  if (v4) {
    emit_ipv4(envelope, udp_length, ip);
  } else {
    emit_ipv6(envelope, udp_length, ip);
  }

  uint8_t* udp = ip + (v4 ? kIpv4Size : kIpv6Size);
  store_be16(udp, envelope.source_port);
  store_be16(udp + 2, kRoceUdpPort);
  store_be16(udp + 4, static_cast<uint16_t>(udp_length));
  store_be16(udp + 6, 0);
  return static_cast<size_t>(udp + kUdpSize - out);
}

void emit_grh_area(const Envelope& envelope, uint32_t udp_length, uint8_t* out) {
  if (!is_v4(envelope)) return emit_ipv6(envelope, udp_length, out);
  std::fill_n(out, kGrhSize - kIpv4Size, uint8_t{0});
  emit_ipv4(envelope, udp_length, out + (kGrhSize - kIpv4Size));
}

// The first byte of IPv4's header is in the middle: what is in front of it is undefined, and ours is zero. In doubt the
// header with a right checksum decides, as in Linux.
std::optional<Envelope> parse_grh_area(std::span<const uint8_t, kGrhSize> area) {
  const Ipv4View v4 = Ipv4View::at(area.data() + (kGrhSize - kIpv4Size));
  Envelope out;
  if (v4.version() == 4 && v4.header_words() == kIpv4Size / 4 && v4.checksum_ok()) {
    out.source = IpAddress::v4(v4.source());
    out.destination = IpAddress::v4(v4.destination());
    out.traffic_class = v4.traffic_class();
    out.hop_limit = v4.ttl();
    out.ip_id = v4.id();
    return out;
  }
  const Ipv6View v6 = Ipv6View::at(area.data());
  if (v6.version() != 6) return std::nullopt;
  out.source = IpAddress::v6(v6.source());
  out.destination = IpAddress::v6(v6.destination());
  out.traffic_class = v6.traffic_class();
  out.hop_limit = v6.hop_limit();
  out.flow_label = v6.flow_label();
  return out;
}

const char* frame_error_text(FrameError error) {
  switch (error) {
    case FrameError::kNone:
      return "no error";
    case FrameError::kTruncated:
      return "truncated";
    case FrameError::kNotIp:
      return "not IP";
    case FrameError::kIpOptions:
      return "IPv4 options";
    case FrameError::kBadIpChecksum:
      return "bad IPv4 header checksum";
    case FrameError::kFragment:
      return "IP fragment";
    case FrameError::kNotUdp:
      return "not UDP";
    case FrameError::kNotRoce:
      return "UDP port is not 4791";
    case FrameError::kLengthMismatch:
      return "IP and UDP length differ";
    case FrameError::kMappedAddress:
      return "IPv4-mapped address in an IPv6 header";
  }
  return "?";
}

}  // namespace uroce::wire

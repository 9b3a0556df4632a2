// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/record.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "wire/segment_batch.h"

namespace uroce::pcapng {
namespace {

// Where the UDP header of an Ethernet frame begins; 0 if the frame is not one that parse_frame() would take.
size_t udp_offset(std::span<const uint8_t> frame) {
  size_t ip = wire::kEthernetSize;
  if (frame.size() < ip) return 0;
  if (wire::load_be16(&frame[ip - 2]) == 0x8100) ip += wire::kVlanTagSize;
  if (frame.size() <= ip) return 0;
  return ip + (frame[ip] >> 4 == 4 ? wire::kIpv4Size : wire::kIpv6Size);
}

}  // namespace

wire::FrameError parse_record(const Record& record, RocePart& out) {
  const wire::FrameError error = wire::parse_frame(record.frame, out.envelope, out.ib);
  out.ib_size = out.ib.size();
  if (error != wire::FrameError::kTruncated || !record.truncated()) return error;

  // parse_frame() has gone as far as UDP's length: all before it is there and right if UDP is.
  const size_t udp_at = udp_offset(record.frame);
  const auto datagram = std::span(record.frame).subspan(std::min(udp_at, record.frame.size()));
  const auto udp = wire::UdpView::checked(datagram);
  if (udp_at == 0 || !udp || udp->length() < wire::kUdpSize) return error;
  if (record.frame.size() - datagram.size() + udp->length() > record.original_length) return error;
  out.envelope.source_port = udp->source_port();
  out.envelope.ip_id_known = true;
  out.ib = datagram.subspan(wire::kUdpSize);
  out.ib_size = udp->length() - wire::kUdpSize;
  return wire::FrameError::kNone;
}

std::vector<Record> packets_of_batch(const Record& record) {
  std::vector<Record> packets;
  RocePart part;
  if (record.truncated() || parse_record(record, part) != wire::FrameError::kNone) return packets;
  const auto batch = wire::find_segment_batch(part.envelope, part.ib);
  if (!batch) return packets;
  packets.reserve(batch->packets(part.ib.size()));
  wire::Envelope envelope = part.envelope;
  for (auto rest = part.ib; !rest.empty();) {
    const auto ib = rest.first(std::min(batch->segment, rest.size()));
    rest = rest.subspan(ib.size());
    Record& packet = packets.emplace_back();
    packet.number = record.number;
    packet.time = record.time;
    packet.interface = record.interface;
    packet.direction = record.direction;
    packet.comment = record.comment;
    packet.frame.resize(wire::frame_header_size(envelope) + ib.size());
    const size_t headers =
        wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), packet.frame.data());
    std::copy(ib.begin(), ib.end(), packet.frame.begin() + static_cast<std::ptrdiff_t>(headers));
    packet.original_length = static_cast<uint32_t>(packet.frame.size());
    envelope.ip_id = static_cast<uint16_t>(envelope.ip_id + batch->id_step);
  }
  return packets;
}

}  // namespace uroce::pcapng

// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/batch.h"

#include <algorithm>

#include "wire/segment_batch.h"

namespace uroce::dissector {
namespace {

wire::Envelope envelope_of(const Datagram& datagram) {
  wire::Envelope envelope;
  envelope.source = datagram.source;
  envelope.destination = datagram.destination;
  envelope.source_port = datagram.source_port;
  envelope.ip_id = datagram.ip_id;
  envelope.ip_id_known = true;
  if (datagram.has_ip_id) envelope.dont_fragment = wire::Ipv4View::at(datagram.ip.data()).dont_fragment();
  return envelope;
}

void set_headers(const Datagram& batch, BatchPacket& packet) {
  const size_t ip_size = batch.ip.size();
  const auto udp_size = static_cast<uint16_t>(wire::kUdpSize + packet.datagram.ib_size);
  uint8_t* const ip = packet.headers.data();
  std::copy_n(batch.ip.data(), ip_size + wire::kUdpSize, ip);  // UDP's header stands behind IP's in the capture
  std::copy_n(packet.datagram.ib.data(), wire::kBthSize, ip + ip_size + wire::kUdpSize);
  wire::store_be16(ip + ip_size + 4, udp_size);
  if (!batch.has_ip_id) return wire::store_be16(ip + 4, udp_size);
  const bool right = wire::Ipv4View::at(ip).checksum_ok();
  wire::store_be16(ip + 2, static_cast<uint16_t>(ip_size + udp_size));
  wire::store_be16(ip + 4, packet.datagram.ip_id);
  if (right) wire::set_ipv4_checksum(ip);  // one that was wrong stays so
}

}  // namespace

std::vector<BatchPacket> packets_of_batch(const Datagram& datagram) {
  std::vector<BatchPacket> packets;
  if (datagram.ip.empty() || !datagram.captured_whole()) return packets;
  const auto ib = datagram.ib.first(datagram.ib_size);
  const auto batch = wire::find_segment_batch(envelope_of(datagram), ib);
  if (!batch) return packets;
  packets.reserve(batch->packets(ib.size()));
  uint16_t id = datagram.ip_id;
  for (size_t offset = 0; offset < ib.size(); offset += batch->segment) {
    const auto part = ib.subspan(offset, std::min(batch->segment, ib.size() - offset));
    if (part.size() < wire::kBthSize) break;  // no packet
    BatchPacket& packet = packets.emplace_back(BatchPacket{datagram, {}, static_cast<uint32_t>(offset)});
    packet.datagram.ip = {};
    packet.datagram.ib = part;
    packet.datagram.ib_size = static_cast<uint32_t>(part.size());
    packet.datagram.ip_id = id;
    set_headers(datagram, packet);
    id = static_cast<uint16_t>(id + batch->id_step);
  }
  return packets;
}

}  // namespace uroce::dissector

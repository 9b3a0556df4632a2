// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run.h"

#include <algorithm>

#include "wire/bth.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

wire::Qpn destination_qp(const io::TxPacket& packet) {
  return wire::BthView::at(packet.header.data()).dest_qp();
}

// What the kernel is told once for the whole message.
bool same_way(const wire::Envelope& a, const wire::Envelope& b) {
  return &a == &b || (a.source == b.source && a.destination == b.destination && a.traffic_class == b.traffic_class &&
                      a.hop_limit == b.hop_limit);
}

size_t bytes_of(const io::TxPacket& packet) {
  return packet.udp_length() - wire::kUdpSize;
}

}  // namespace

RunLimits::RunLimits(uint32_t gso_max_size) {
  const uint32_t frame = std::clamp(gso_max_size, 2048u, kUsualGsoMaxSize) - 1;
  bytes_v4 = frame - wire::kEthernetSize - wire::kIpv4Size - wire::kUdpSize;
  bytes_v6 = frame - wire::kEthernetSize - wire::kIpv6Size - wire::kUdpSize;
}

size_t run_length(std::span<const io::TxPacket> packets, const RunLimits& limits) {
  const io::TxPacket& first = packets.front();
  const size_t size = bytes_of(first);
  const wire::Qpn to = destination_qp(first);
  size_t room = first.envelope->destination.is_v4() ? limits.bytes_v4 : limits.bytes_v6;
  const size_t most = std::min(packets.size(), limits.packets);
  size_t count = 0;
  while (count < most) {
    const io::TxPacket& packet = packets[count];
    const size_t bytes = bytes_of(packet);
    const bool joins = !packet.alone && bytes <= std::min(size, room) && destination_qp(packet) == to &&
                       same_way(*packet.envelope, *first.envelope);
    if (!joins && count > 0) break;
    ++count;
    if (!joins || bytes < size) break;
    room -= std::min(room, bytes);
  }
  return count;
}

}  // namespace uroce::io

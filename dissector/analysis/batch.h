// SPDX-License-Identifier: GPL-2.0-or-later
// A datagram that is a segment batch (wire/segment_batch.h), as the packets that it is on a wire.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dissector/analysis/datagram.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {

struct BatchPacket {
  // `ip` is not set: it is what `headers` begin with, wherever they are kept.
  Datagram datagram;
  // IP, UDP and BTH with the lengths and the identification that the packet has on a wire, which its ICRC covers; as
  // long as the datagram's own together.
  std::array<uint8_t, wire::kIpv6Size + wire::kUdpSize + wire::kBthSize> headers;
  uint32_t offset;  // of the packet's BTH behind the batch's UDP header
};

// Empty: it is one packet, or not all of it was captured.
std::vector<BatchPacket> packets_of_batch(const Datagram& datagram);

}  // namespace uroce::dissector

// SPDX-License-Identifier: BSD-2-Clause
// Packets longer than the path MTU. Between processes of one host, which meet through memory, a packet costs as much as
// 1 KiB of its payload or more. So an RC or XRC QP may send several packets of a message as one: it takes the PSNs of
// all of them, its opcode says whether the first and the last of the message are among them, and its acknowledgement is
// that of the last. Sent again, the same bytes may be grouped in another way: what has arrived is cut off.
//
// Who sends says how many PSNs it means (Packet::psns); the payload has to fit that here, where the path MTU is known.
// From the network there are none: psns is 1.
#pragma once

#include <cstdint>

#include "wire/packet.h"

namespace uroce::transport {

// IBTA 9.7.4.1.6, for as many packets: first and middle ones are full and unpadded, the last one is not longer. It is
// not empty either, unless the whole message is.
inline bool has_valid_length(const wire::Packet& packet, uint32_t mtu) {
  const uint64_t size = packet.payload.size();
  const uint64_t full = uint64_t{packet.psns} * mtu;
  if (!packet.info->last) return size == full && packet.bth.pad == 0;
  return size <= full && (size > full - mtu || (packet.psns == 1 && packet.info->first));
}

// What is left of a packet of a valid length without its first `arrived` PSNs, fewer than it has.
inline wire::Packet without_first(const wire::Packet& packet, uint32_t arrived, uint32_t mtu) {
  const auto middle_or_last = [](wire::Opcode opcode) {
    const auto code = static_cast<uint8_t>(opcode);
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.first) return opcode;
    if (!info.last) return wire::Opcode{static_cast<uint8_t>(code + 1)};
    const bool behind_it = info.has_ieth || info.operation == wire::Operation::kReadResponse;
    return wire::Opcode{static_cast<uint8_t>(code - (behind_it ? 1 : 2))};
  };
  wire::Packet rest = packet;
  rest.bth.opcode = middle_or_last(packet.bth.opcode);
  rest.info = &wire::opcode_info(rest.bth.opcode);
  rest.bth.psn = packet.bth.psn + arrived;
  rest.psns = packet.psns - arrived;
  rest.payload = packet.payload.subspan(size_t{arrived} * mtu);
  return rest;
}

// How many PSNs of it have arrived where `expected` is the next one; 0: it does not begin before that, or it ends
// before.
inline uint32_t arrived_in_part(const wire::Packet& packet, wire::Psn expected, uint32_t mtu) {
  if (packet.psns == 1 || !packet.info->has_payload) return 0;
  const int32_t arrived = wire::Psn::distance(packet.bth.psn, expected);
  const bool in_part = arrived > 0 && static_cast<uint32_t>(arrived) < packet.psns && has_valid_length(packet, mtu);
  return in_part ? static_cast<uint32_t>(arrived) : 0;
}

}  // namespace uroce::transport

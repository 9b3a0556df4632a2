// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/frame_builder.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bytes.h"
#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::io {
namespace {

constexpr size_t kBthSize = 12;
constexpr size_t kUdpHeaderSize = 8;
constexpr uint8_t kPadBytes[4] = {};

// CRC state after everything in front of the payload.
uint32_t crc_of_headers(const io::TxPacket& packet, const wire::Envelope& envelope) {
  assert(packet.header_size >= kBthSize && packet.header_size <= io::TxPacket::kMaxHeaderSize && packet.pad <= 3);
  return wire::icrc_headers(envelope, packet.udp_length(), packet.header, packet.header_size);
}

}  // namespace

size_t frame_size(const io::TxPacket& packet) {
  return wire::frame_header_size(*packet.envelope) - kUdpHeaderSize + packet.udp_length();
}

size_t build_ib(const io::TxPacket& packet, const wire::Envelope& envelope, uint8_t* out) {
  uint8_t* p = out;
  std::memcpy(p, packet.header.data(), packet.header_size);
  p += packet.header_size;
  uint32_t crc = crc_of_headers(packet, envelope);
  for (size_t i = 0; i < packet.fragment_count; ++i) {
    const io::Fragment& fragment = packet.fragments[i];
    crc = wire::crc32_copy(crc, p, fragment.data, fragment.size);
    p += fragment.size;
  }
  if (packet.pad != 0) crc = wire::crc32_copy(crc, p, kPadBytes, packet.pad);
  p += packet.pad;
  wire::store_le32(p, wire::icrc_finish(crc) ^ packet.icrc_damage);
  return static_cast<size_t>(p + 4 - out);
}

bool payload_covers(const io::TxPacket& packet, uintptr_t from, uintptr_t to) {
  const auto* const end = packet.fragments.begin() + packet.fragment_count;
  return std::any_of(packet.fragments.begin(), end, [=](const io::Fragment& fragment) {
    return memory::overlap(fragment.data, fragment.size, from, to);
  });
}

bool build_ib_guarded(const io::TxPacket& packet, const wire::Envelope& envelope, uint8_t* out) {
  return guard_payload(packet, [&] { build_ib(packet, envelope, out); });
}

size_t build_frame(const io::TxPacket& packet, uint16_t ip_id, uint8_t* out) {
  wire::Envelope envelope = *packet.envelope;
  envelope.ip_id = ip_id;
  const size_t headers = wire::emit_frame_headers(envelope, packet.udp_length(), out);
  return headers + build_ib(packet, envelope, out + headers);
}

bool build_frame_guarded(const io::TxPacket& packet, uint16_t ip_id, uint8_t* out) {
  return guard_payload(packet, [&] { build_frame(packet, ip_id, out); });
}

void add_icrc(const wire::Envelope& envelope, std::span<uint8_t> ib) {
  const std::span<uint8_t> summed = ib.first(ib.size() - wire::kIcrcSize);
  wire::store_le32(summed.data() + summed.size(), wire::icrc(envelope, summed));
}

uint32_t packet_icrc(const io::TxPacket& packet, const wire::Envelope& envelope) {
  uint32_t crc = crc_of_headers(packet, envelope);
  for (size_t i = 0; i < packet.fragment_count; ++i) {
    crc = wire::crc32_update(crc, packet.fragments[i].data, packet.fragments[i].size);
  }
  return wire::icrc_finish(wire::crc32_update(crc, kPadBytes, packet.pad)) ^ packet.icrc_damage;
}

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// The invariant CRC at the end of every RoCE v2 packet: CRC-32 over everything that no router may change (IBTA 7.8.1,
// annex A17). Fields that may change count as all ones.
//
// A sender that gathers a packet goes step by step: icrc_headers, crc32_copy for all that follows, icrc_finish.
// A receiver calls icrc_matches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "wire/envelope.h"

namespace uroce::wire {

// CRC register after the dummy LRH: eight bytes of ones.
inline constexpr uint32_t kIcrcSeed = 0xdebb20e3;

// CRC state after LRH, IP and UDP header. udp_length: UDP header to ICRC, both included. Of the envelope count
// addresses, source port, and for IPv4 ip_id and dont_fragment.
uint32_t icrc_start(const Envelope& envelope, uint32_t udp_length);

// The same after the transport headers as well, BTH and extension headers: the first `size` bytes of `transport`, 12 at
// least. The rest of the packet (payload, pad) is plain crc32_update.
inline constexpr size_t kIcrcHeaderRoom = 48;
uint32_t icrc_headers(const Envelope& envelope, uint32_t udp_length,
                      std::span<const uint8_t, kIcrcHeaderRoom> transport, size_t size);

// The ICRC; its bytes go on the wire least significant first: store_le32(out, icrc_finish(state)).
constexpr uint32_t icrc_finish(uint32_t state) {
  return ~state;
}

// The ICRC of a packet: BTH to pad, without its last four bytes; at least 12 bytes.
uint32_t icrc(const Envelope& envelope, std::span<const uint8_t> ib_without_icrc);

// The same straight from the definition, for tests: writes the pseudo packet and sums it bit by bit. Allocates.
uint32_t icrc_reference(const Envelope& envelope, std::span<const uint8_t> ib_without_icrc);

// True if the last four bytes of `ib` (BTH to ICRC) are its ICRC; false also if there are fewer than 16 bytes.
//
// A UDP socket hides the IPv4 header, and with it the ID (envelope.ip_id_known false). Then true if some ID gives this
// ICRC: of a random corruption one in 2^16 passes instead of one in 2^32. DF cannot be seen either and is taken from
// envelope.dont_fragment, which a socket backend leaves true: all native endpoints set it (wire.md "IP and
// UDP"). ID 0, which Linux sends, costs nothing extra.
bool icrc_matches(const Envelope& envelope, std::span<const uint8_t> ib);

// The IPv4 identification with which `ib` has the ICRC that it has, for an envelope that does not know it
// (ip_id_known false); nullopt: there is none, the packet is corrupted.
std::optional<uint16_t> icrc_ip_id(const Envelope& envelope, std::span<const uint8_t> ib);

}  // namespace uroce::wire

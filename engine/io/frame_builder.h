// SPDX-License-Identifier: BSD-2-Clause
// Makes the bytes of a packet: Ethernet, IP and UDP headers, transport headers, payload, pad and ICRC. For the backends
// that hand out whole frames (AfXdp, MemoryLink) and, without the outer headers, UdpIo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/io/tx_packet.h"
#include "engine/memory/memory_access.h"

namespace uroce::io {

// Size of the frame that build_frame() makes.
size_t frame_size(const io::TxPacket& packet);

// Writes the frame of `packet` to `out`, which has room for frame_size(packet) bytes, and returns its size. The payload
// is copied and summed in one pass. `ip_id` replaces the envelope's: it belongs to the sending netdev, not to a QP.
size_t build_frame(const io::TxPacket& packet, uint16_t ip_id, uint8_t* out);

// The InfiniBand part alone, BTH to ICRC: packet.udp_length() less the eight bytes of the UDP header. `envelope` is
// what it leaves in, which the ICRC covers.
size_t build_ib(const io::TxPacket& packet, const wire::Envelope& envelope, uint8_t* out);

// Whether any byte of [from, to) belongs to the payload.
bool payload_covers(const io::TxPacket& packet, uintptr_t from, uintptr_t to);

// Runs something that reads the payload, see memory::guarded(). False: a part of it cannot be read.
template <class Run>
bool guard_payload(const io::TxPacket& packet, Run&& run) {
  return memory::guarded(run, [&](uintptr_t from, uintptr_t to) { return payload_covers(packet, from, to); });
}

// The same as build_frame() and build_ib(); false if the payload cannot be read (faults.md, 42), and then the bytes at
// `out` are unspecified.
bool build_frame_guarded(const io::TxPacket& packet, uint16_t ip_id, uint8_t* out);
bool build_ib_guarded(const io::TxPacket& packet, const wire::Envelope& envelope, uint8_t* out);

// Writes the ICRC where `ib`, a packet that came without one, has its place. `ib`: BTH to ICRC.
void add_icrc(const wire::Envelope& envelope, std::span<uint8_t> ib);

// The ICRC of `packet` when it leaves inside `envelope`; its bytes go on the wire least significant first.
uint32_t packet_icrc(const io::TxPacket& packet, const wire::Envelope& envelope);

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// A packet to send, before it has bytes: where it goes, its transport headers, and where its payload lies.
// The transport fills headers and fragments; the engine adds the envelope; a PacketIo backend makes the bytes
// (Ethernet/IP/UDP in front, pad and ICRC behind). architecture.md, decision 4.
#pragma once

#include <array>
#include <cstdint>

#include "engine/io/send_reason.h"
#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::io {

// A piece of payload in place, in application memory. Valid until PacketIo::send returns.
struct Fragment {
  const uint8_t* data;
  uint32_t size;
};

struct TxPacket {
  // BTH (12) plus the longest extension an RC, UC, UD or XRC packet carries: XRCETH (4) + AtomicETH (28).
  static constexpr size_t kMaxHeaderSize = 48;
  // The largest number of pieces one packet can be gathered from: one per SGE of a work request.
  static constexpr size_t kMaxFragments = 16;

  const wire::Envelope* envelope = nullptr;  // set by the engine; outlives the call of PacketIo::send
  wire::Qpn source_qpn;                      // set by the engine: whose packet this is
  uint32_t payload_size = 0;                 // bytes, without pad; the sum of all fragments
  uint32_t psns = 1;        // that it takes; more than one: it is longer than the path MTU (PacketIo::long_payload)
  uint8_t header_size = 0;  // bytes used of `header`: BTH and extension headers
  uint8_t fragment_count = 0;
  uint8_t pad = 0;          // 0..3 zero bytes after the payload, as BTH.PadCnt says
  bool unreadable = false;  // set by PacketIo::send: a fragment lies in memory that the application took away
  // The last packet of an unreliable message: the transport wants to know when its bytes have been made, and gets
  // `send_index` back, the message's place in the send queue.
  bool completes = false;
  bool alone = false;                      // not in a run (PacketIo::run)
  bool priority = false;                   // goes ahead of data on its way: a CNP
  bool to_this_host = false;               // set by the engine: to an address of this very netdev
  bool local_delivery = false;             // likewise: to a group, or to another netdev of this host
  SendReason reason = SendReason::kFirst;  // for who looks on: the capture stage
  uint8_t faults = 0;  // set by PacketIo::send: bits of io::Fault, what was done to the packet on purpose
  uint16_t ip_id = 0;  // set by PacketIo::send: the IPv4 identification that it left with
  uint32_t send_index = 0;
  uint32_t icrc_damage = 0;  // what the right ICRC is XORed with: the fault injector's, who breaks packets on purpose
  // UD: where it goes, set by the transport for the engine; 0: where the QP is connected to.
  uint32_t address_handle = 0;
  std::array<uint8_t, kMaxHeaderSize> header;
  std::array<Fragment, kMaxFragments> fragments;

  void clear_payload() {
    payload_size = 0;
    psns = 1;
    fragment_count = 0;
    pad = 0;
    completes = alone = priority = false;
    reason = SendReason::kFirst;
  }

  // Size of everything covered by the UDP header: UDP header, BTH.., payload, pad, ICRC.
  uint32_t udp_length() const { return 8u + header_size + payload_size + pad + 4u; }
};

}  // namespace uroce::io

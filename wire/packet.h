// SPDX-License-Identifier: BSD-2-Clause
// A received InfiniBand packet as values: all headers its opcode has, and the payload in place.
// Called for every packet that arrives, before the ICRC is verified.
#pragma once

#include <cstdint>
#include <span>

#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/envelope.h"
#include "wire/feth.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/opcode.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace uroce::wire {

// An extension header holds something only if `info` says that the opcode has it.
struct Packet {
  const Envelope* envelope = nullptr;  // not of the parser: the engine's; UD hands it to the application (GRH)
  Bth bth;
  const OpcodeInfo* info = nullptr;
  Reth reth;
  Aeth aeth;
  AtomicEth atomic_eth;
  AtomicAckEth atomic_ack_eth;
  ImmDt immdt;
  Ieth ieth;
  Deth deth;
  Xrceth xrceth;
  Feth feth;
  std::span<const uint8_t> payload;  // without pad and ICRC; in the buffer that was parsed
  // Not of the parser: the PSNs that the packet takes. More than one only between processes of one host, of RC and XRC
  // (engine/transport/common/long_packet.h).
  uint32_t psns = 1;
};

enum class ParseError : uint8_t {
  kNone,
  kTruncated,  // shorter than its headers and the ICRC
  kUnknownOpcode,
  kBadTver,
  kPadExceedsPayload,  // BTH.PadCnt is larger than what lies between headers and ICRC
  kUnexpectedPayload,  // bytes after the headers of an opcode that has no payload
};

const char* parse_error_text(ParseError error);  // "truncated"

// `ib`: BTH to ICRC, both included. Checks in this order: length of BTH and ICRC, opcode, TVer, length of all headers,
// pad, payload where there may be none. On success fills bth, info, payload and the headers the opcode has; the others
// keep what they held. On failure `out` is unspecified, except that out.bth is the packet's from kUnknownOpcode on.
// Does not look at the ICRC, and leaves to the transport what depends on a QP (keys, PMTU, lengths).
ParseError parse_packet(std::span<const uint8_t> ib, Packet& out);
// The same where only `headers` may be looked at: BTH and all that the opcode has, at least. `rest`: payload, pad and
// ICRC.
ParseError parse_packet(std::span<const uint8_t> headers, std::span<const uint8_t> rest, Packet& out);

}  // namespace uroce::wire

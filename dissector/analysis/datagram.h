// SPDX-License-Identifier: GPL-2.0-or-later
// One RoCE v2 datagram as the capture has it, and its InfiniBand headers as far as they were captured. Filled by the
// plugin (plugin/hook.cc), read by everything in analysis/. Nothing here knows Wireshark.
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

namespace uroce::dissector {

struct Datagram {
  uint32_t frame = 0;  // number in the capture, from 1
  int64_t time = 0;    // nanoseconds
  wire::IpAddress source, destination;
  uint16_t source_port = 0;
  bool has_ip_id = false;  // IPv4
  uint16_t ip_id = 0;
  uint8_t traffic_class = 0;
  std::span<const uint8_t> ip;  // the IP header, 20 or 40 bytes; empty: not found, or one that RoCE v2 excludes
  std::span<const uint8_t> ib;  // BTH to ICRC, as much as was captured
  uint32_t ib_size = 0;         // on the wire

  bool captured_whole() const { return ib.size() >= ib_size; }
};

enum class HeaderProblem : uint8_t {
  kNone,
  kNotCaptured,  // the capture cut the packet inside its headers
  kTooShort,     // the packet itself ends inside its headers or has no room for the ICRC
  kUnknownOpcode,
  kBadTver,
  kPadExceedsPayload,
  kUnexpectedPayload,
};

// Headers by value. Those that the opcode has not, or that were not captured, are zero.
struct Headers {
  HeaderProblem problem = HeaderProblem::kNone;
  bool has_bth = false;
  uint32_t parsed = 0;                     // bytes of headers that are there, in the order of the wire
  uint32_t payload_size = 0;               // on the wire, without pad; 0 unless problem is kNone
  const wire::OpcodeInfo* info = nullptr;  // never null once has_bth
  wire::Bth bth;
  wire::Xrceth xrceth;
  wire::Deth deth;
  wire::Feth feth;
  wire::Reth reth;
  wire::AtomicEth atomic_eth;
  wire::Aeth aeth;
  wire::AtomicAckEth atomic_ack_eth;
  wire::ImmDt immdt;
  wire::Ieth ieth;

  bool usable() const { return problem == HeaderProblem::kNone; }
};

// Unlike wire::parse_packet() takes what a capture cut short, and says how far it came.
Headers parse_headers(std::span<const uint8_t> ib, uint32_t ib_size);

const char* header_problem_text(HeaderProblem problem);

}  // namespace uroce::dissector

// SPDX-License-Identifier: GPL-2.0-or-later
// Whether requests in PSN order follow each other as messages must, and are as long as their opcode and RETH say
// (IBTA 9.6.1, 9.7.4.1.1-4). Asked by RequestTrack for every request that is neither a repetition nor late.
#pragma once

#include <cstdint>

#include "dissector/analysis/datagram.h"
#include "dissector/analysis/finding.h"

namespace uroce::dissector {

class OpcodeSequence {
 public:
  // `in_order`: nothing is missing between the packet before and this one. `path_mtu`: 0 while not known.
  void check(const Headers& headers, bool in_order, uint32_t path_mtu, Findings& findings);

 private:
  enum class State : uint8_t { kUnknown, kBetween, kInside };

  void check_order(const Headers& headers, Findings& findings);
  void check_length(const Headers& headers, uint32_t path_mtu, Findings& findings);

  State state_ = State::kUnknown;
  wire::Operation operation_ = wire::Operation::kNone;
  bool length_known_ = false;  // of the message, from a RETH
  uint32_t length_ = 0;
  uint64_t bytes_ = 0;  // so far
};

inline constexpr uint32_t kSmallestPathMtu = 256, kLargestPathMtu = 4096;

// A payload size that can be a path MTU.
constexpr bool is_path_mtu(uint32_t size) {
  return size >= kSmallestPathMtu && size <= kLargestPathMtu && (size & (size - 1)) == 0;
}

}  // namespace uroce::dissector

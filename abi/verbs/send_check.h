// SPDX-License-Identifier: BSD-2-Clause
// Which send work requests a queue pair takes; for ibv_post_send and ibv_wr_*. Protection is not checked here: that is
// the engine's, and ends in a completion.
#pragma once

#include <cerrno>
#include <cstdint>
#include <infiniband/verbs.h>

#include "engine/engine.h"

namespace uroce::verbs {

// IBTA 10.3.1: send requests can be posted from RTS on.
inline bool accepts_sends(transport::QpState state) {
  using transport::QpState;
  return state == QpState::kRts || state == QpState::kSqd || state == QpState::kSqe || state == QpState::kErr;
}

inline bool is_atomic(queue::WrOpcode opcode) {
  return opcode == queue::WrOpcode::kCompareSwap || opcode == queue::WrOpcode::kFetchAdd;
}

// Whether the payload goes out; else it comes back, or there is none, and it cannot be inline.
inline bool carries_payload(queue::WrOpcode opcode) {
  using queue::WrOpcode;
  return opcode != WrOpcode::kRdmaRead && !is_atomic(opcode) && opcode != WrOpcode::kLocalInvalidate &&
         opcode != WrOpcode::kBindMw && opcode != WrOpcode::kFlush;
}

// The operations of a QP type as a set of 1 << queue::WrOpcode (IBTA table 24; annexes A14, A19).
constexpr uint32_t opcodes_of(ibv_qp_type type) {
  constexpr auto bit = [](queue::WrOpcode opcode) { return 1u << static_cast<uint32_t>(opcode); };
  using queue::WrOpcode;
  constexpr uint32_t kDatagram = bit(WrOpcode::kSend) | bit(WrOpcode::kSendWithImmediate);
  constexpr uint32_t kUnreliable = kDatagram | bit(WrOpcode::kRdmaWrite) | bit(WrOpcode::kRdmaWriteWithImmediate) |
                                   bit(WrOpcode::kBindMw) | bit(WrOpcode::kLocalInvalidate);
  constexpr uint32_t kReliable = kUnreliable | bit(WrOpcode::kRdmaRead) | bit(WrOpcode::kCompareSwap) |
                                 bit(WrOpcode::kFetchAdd) | bit(WrOpcode::kSendWithInvalidate);
  switch (type) {
    case IBV_QPT_RC:
      return kReliable | bit(WrOpcode::kFlush) | bit(WrOpcode::kAtomicWrite);
    case IBV_QPT_XRC_SEND:
      return kReliable;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_UD:
      return kDatagram;
    default:
      return 0;  // XRC targets only receive
  }
}

// `opcode`: a number of enum ibv_wr_opcode.
inline bool is_supported(uint32_t opcodes, uint32_t opcode) {
  return opcode < 32 && (opcodes >> opcode & 1);
}

// 0 or EINVAL. `length`: the bytes in all SGEs, or inline.
inline int check_length(queue::WrOpcode opcode, uint8_t flags, uint64_t length, uint32_t max_inline) {
  constexpr uint64_t kAtomicOperand = 8;  // IBTA 9.4.5, A19
  if ((is_atomic(opcode) || opcode == queue::WrOpcode::kAtomicWrite) && length != kAtomicOperand) return EINVAL;
  if ((flags & queue::kInline) && (!carries_payload(opcode) || length > max_inline)) return EINVAL;
  return length <= engine::Limits::kMaxMessage ? 0 : EINVAL;
}

// The flags the engine knows; IBV_SEND_IP_CSUM means nothing without IPoIB and is dropped.
inline uint8_t wqe_flags(unsigned int send_flags) {
  return static_cast<uint8_t>(send_flags & (queue::kFence | queue::kSignaled | queue::kSolicited | queue::kInline));
}

}  // namespace uroce::verbs

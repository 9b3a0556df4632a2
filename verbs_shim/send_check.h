// Which send work requests an RC queue pair takes; for ibv_post_send and ibv_wr_*. Protection is not checked here: that
// is the engine's, and ends in a completion.
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

// Whether the payload goes out; else it comes back and cannot be inline.
inline bool carries_payload(queue::WrOpcode opcode) {
  return opcode != queue::WrOpcode::kRdmaRead && !is_atomic(opcode);
}

// A number of enum ibv_wr_opcode.
inline bool is_supported(uint32_t opcode) {
  return opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_SEND_WITH_INV;
}

// 0 or EINVAL. `length`: the bytes in all SGEs, or inline.
inline int check_length(queue::WrOpcode opcode, uint8_t flags, uint64_t length, uint32_t max_inline) {
  constexpr uint64_t kAtomicOperand = 8;  // IBTA 9.4.5
  if (is_atomic(opcode) && length != kAtomicOperand) return EINVAL;
  if ((flags & queue::kInline) && (!carries_payload(opcode) || length > max_inline)) return EINVAL;
  return length <= engine::Limits::kMaxMessage ? 0 : EINVAL;
}

// The flags the engine knows; IBV_SEND_IP_CSUM means nothing to RC and is dropped.
inline uint8_t wqe_flags(unsigned int send_flags) {
  return static_cast<uint8_t>(send_flags & (queue::kFence | queue::kSignaled | queue::kSolicited | queue::kInline));
}

}  // namespace uroce::verbs

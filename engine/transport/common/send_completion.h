// SPDX-License-Identifier: BSD-2-Clause
// How send WQEs end: the completion that the application sees. For requesters of all transports.
#pragma once

#include "engine/transport/common/qp_context.h"

namespace uroce::transport {

queue::WcOpcode completion_opcode(queue::WrOpcode opcode);

// The operation is answered by the peer, with data or without: READ, atomics, ATOMIC WRITE, FLUSH. They take one of
// max_rd_atomic, and complete by their own response only.
constexpr bool awaits_response(queue::WrOpcode opcode) {
  using queue::WrOpcode;
  return opcode == WrOpcode::kRdmaRead || opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd ||
         opcode == WrOpcode::kFlush || opcode == WrOpcode::kAtomicWrite;
}

// Executed here, without a packet: binding and invalidating of memory windows.
constexpr bool is_local(queue::WrOpcode opcode) {
  return opcode == queue::WrOpcode::kLocalInvalidate || opcode == queue::WrOpcode::kBindMw;
}

// Completes the oldest WQE. Its slot is free before the CQE can be seen: who polls it may post at once.
Outcome complete_oldest(QpContext& qp, queue::WcStatus status);

// Executes a local operation; the status it completes with.
queue::WcStatus execute_local(QpContext& qp, const queue::SendWqe& wqe);

}  // namespace uroce::transport

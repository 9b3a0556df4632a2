// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/send_completion.h"

namespace uroce::transport {

using queue::SendWqe;
using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;

WcOpcode completion_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImmediate:
      return WcOpcode::kRdmaWrite;
    case WrOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case WrOpcode::kCompareSwap:
      return WcOpcode::kCompareSwap;
    case WrOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case WrOpcode::kLocalInvalidate:
      return WcOpcode::kLocalInvalidate;
    case WrOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case WrOpcode::kFlush:
      return WcOpcode::kFlush;
    case WrOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
    default:
      return WcOpcode::kSend;
  }
}

Outcome complete_oldest(QpContext& qp, WcStatus status) {
  const SendWqe& wqe = qp.sq.entry(qp.sq.tail()).wqe;
  const bool visible = status != WcStatus::kSuccess || qp.signal_all || (wqe.flags & queue::kSignaled);
  const bool returns_data =
      wqe.opcode == WrOpcode::kRdmaRead || wqe.opcode == WrOpcode::kCompareSwap || wqe.opcode == WrOpcode::kFetchAdd;
  queue::Cqe cqe;
  cqe.wr_id = wqe.wr_id;
  cqe.status = status;
  cqe.opcode = completion_opcode(wqe.opcode);
  cqe.byte_length = returns_data ? wqe.length : 0;
  qp.sq.release();
  return visible ? qp.push(qp.send_cq, cqe) : Outcome::kGoesOn;
}

WcStatus execute_local(QpContext& qp, const SendWqe& wqe) {
  if (wqe.opcode == WrOpcode::kLocalInvalidate) {
    return qp.mrs.invalidate(wqe.immediate_or_rkey, qp.pd, qp.qpn.value()) ? WcStatus::kSuccess
                                                                           : WcStatus::kLocalQpOperationError;
  }
  const memory::WindowBinding binding{.window_key = wqe.rkey,
                                      .new_key = wqe.immediate_or_rkey,
                                      .region_key = wqe.bind.region_key,
                                      .address = wqe.remote_address,
                                      .length = wqe.bind.length,
                                      .access = wqe.bind.access,
                                      .pd = qp.pd,
                                      .qpn = qp.qpn.value()};
  return qp.mrs.bind(binding) ? WcStatus::kSuccess : WcStatus::kMwBindError;
}

}  // namespace uroce::transport

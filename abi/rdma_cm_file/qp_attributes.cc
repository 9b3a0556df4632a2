// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/qp_attributes.h"

#include <cerrno>

namespace uroce::rdma_cm {
namespace {

// enum ib_qp_attr_mask.
constexpr uint32_t kMaskState = 1 << 0, kMaskAccess = 1 << 3, kMaskPkeyIndex = 1 << 4, kMaskPort = 1 << 5,
                   kMaskQkey = 1 << 6, kMaskAv = 1 << 7, kMaskPathMtu = 1 << 8, kMaskTimeout = 1 << 9,
                   kMaskRetry = 1 << 10, kMaskRnrRetry = 1 << 11, kMaskRqPsn = 1 << 12, kMaskMaxRdAtomic = 1 << 13,
                   kMaskMinRnr = 1 << 15, kMaskSqPsn = 1 << 16, kMaskMaxDestRdAtomic = 1 << 17, kMaskDestQpn = 1 << 20;
// enum ib_access_flags.
constexpr uint32_t kRemoteWrite = 2, kRemoteRead = 4, kRemoteAtomic = 8;

bool is_live(Phase phase) {
  return phase != Phase::kNone && phase != Phase::kEnded;
}

// The other side's QP is known.
bool is_told(Phase phase) {
  return is_live(phase) && phase != Phase::kReqSent;
}

void init(const CmId& id, abi::QpAttr& out) {
  out.qp_attr_mask = kMaskState | kMaskPkeyIndex | kMaskPort;
  out.port_num = 1;
  if (id.is_datagram()) {
    out.qp_attr_mask |= kMaskQkey;
    out.qkey = abi::kUdpQkey;
    return;
  }
  out.qp_attr_mask |= kMaskAccess;
  if (!is_live(id.phase)) return;
  out.qp_access_flags = kRemoteWrite;
  if (id.qp.max_dest_rd_atomic > 0) out.qp_access_flags |= kRemoteRead | kRemoteAtomic;
}

void ready_to_receive(const CmId& id, const abi::AhAttr& path, abi::QpAttr& out) {
  out.qp_attr_mask = kMaskState | kMaskAv | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
  out.ah_attr = path;
  out.path_mtu = id.qp.path.mtu;
  out.dest_qp_num = id.qp.dest_qpn.value();
  out.rq_psn = id.qp.rq_psn.value();
  if (id.qp_type != abi::kRc && id.qp_type != abi::kXrcTarget) return;
  out.qp_attr_mask |= kMaskMaxDestRdAtomic | kMaskMinRnr;
  out.max_dest_rd_atomic = id.qp.max_dest_rd_atomic;
  out.min_rnr_timer = id.qp.min_rnr_timer;
}

void ready_to_send(const CmId& id, abi::QpAttr& out) {
  out.qp_attr_mask = kMaskState | kMaskSqPsn;
  out.sq_psn = id.qp.sq_psn.value();
  if (id.qp_type == abi::kUc) return;
  out.qp_attr_mask |= kMaskTimeout;
  out.timeout = id.ack_timeout.value_or(id.qp.path.ack_timeout);
  if (id.qp_type == abi::kXrcTarget) return;
  out.qp_attr_mask |= kMaskRetry | kMaskRnrRetry | kMaskMaxRdAtomic;
  out.retry_cnt = id.qp.retry_count;
  out.rnr_retry = id.qp.rnr_retry;
  out.max_rd_atomic = id.qp.max_rd_atomic;
}

}  // namespace

int qp_attributes(const CmId& id, uint32_t qp_state, const std::optional<abi::AhAttr>& path, abi::QpAttr& out) {
  out = {};
  out.qp_state = qp_state;
  if (qp_state > abi::kErr) return EINVAL;
  // A datagram QP, and one that nobody is told of yet, is nobody's peer: whatever the state, there is no more to say.
  if (id.is_datagram() || id.phase == Phase::kNone) return init(id, out), 0;
  switch (qp_state) {
    case abi::kInit:
      if (!is_live(id.phase)) return EINVAL;
      return init(id, out), 0;
    case abi::kRtr:
      if (!is_told(id.phase) || !path) return EINVAL;
      return ready_to_receive(id, *path, out), 0;
    case abi::kRts:
      if (!is_told(id.phase)) return EINVAL;
      return ready_to_send(id, out), 0;
    default:
      return EINVAL;
  }
}

}  // namespace uroce::rdma_cm

// SPDX-License-Identifier: BSD-2-Clause
// ibv_wr_start .. ibv_wr_complete: builds a batch of WQEs in reserved slots and publishes it as a whole, or not at all
// after any error. The QP's send lock is held in between.

#include "abi/verbs/qp_ex.h"

#include <cerrno>
#include <cstring>

#include "abi/verbs/memory_objects.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/send_check.h"

namespace uroce::verbs {
namespace {

using queue::SendWqe;
using queue::WrOpcode;

// Checks the request built last, now that its payload is known.
void finish_current(Qp& qp) {
  WrBuilder& builder = qp.builder;
  if (builder.error != 0 || builder.count == 0) return;
  const SendWqe& wqe = *builder.slot.wqe;
  builder.error = check_length(wqe.opcode, wqe.flags, wqe.length, qp.send_queue->max_inline());
  const bool datagram = qp.verbs.qp_base.qp_type == IBV_QPT_UD;
  if (builder.error == 0 && datagram && wqe.ud.address_handle == 0) builder.error = EINVAL;
}

// Begins the next request; null after an error.
SendWqe* begin(ibv_qp_ex* verbs, WrOpcode opcode) {
  Qp& qp = from(verbs);
  WrBuilder& builder = qp.builder;
  finish_current(qp);
  if (builder.error == 0 && !qp.send_queue->reserve(builder.count, builder.slot)) builder.error = ENOMEM;
  if (builder.error != 0) return nullptr;
  ++builder.count;
  SendWqe& wqe = *builder.slot.wqe;
  wqe = {};
  wqe.wr_id = verbs->wr_id;
  wqe.opcode = opcode;
  // Data is inline if a wr_set_inline_* says so.
  wqe.flags = wqe_flags(verbs->wr_flags & ~static_cast<unsigned int>(IBV_SEND_INLINE));
  return &wqe;
}

// The request whose payload is being set; null after an error or before the first request.
SendWqe* current(Qp& qp) {
  if (qp.builder.count == 0 && qp.builder.error == 0) qp.builder.error = EINVAL;
  return qp.builder.error == 0 ? qp.builder.slot.wqe : nullptr;
}

void begin_remote(ibv_qp_ex* verbs, WrOpcode opcode, uint32_t rkey, uint64_t remote_address, uint32_t immediate = 0) {
  if (SendWqe* wqe = begin(verbs, opcode)) {
    wqe->rkey = rkey;
    wqe->remote_address = remote_address;
    wqe->immediate_or_rkey = immediate;
  }
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap) {
  if (SendWqe* wqe = begin(qp, WrOpcode::kCompareSwap)) {
    wqe->rkey = rkey;
    wqe->remote_address = remote_addr;
    wqe->operands.compare_add = compare;
    wqe->operands.swap = swap;
  }
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) {
  if (SendWqe* wqe = begin(qp, WrOpcode::kFetchAdd)) {
    wqe->rkey = rkey;
    wqe->remote_address = remote_addr;
    wqe->operands.compare_add = add;
  }
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  begin_remote(qp, WrOpcode::kRdmaRead, rkey, remote_addr);
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  begin_remote(qp, WrOpcode::kRdmaWrite, rkey, remote_addr);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, __be32 imm_data) {
  begin_remote(qp, WrOpcode::kRdmaWriteWithImmediate, rkey, remote_addr, imm_data);
}

void wr_send(ibv_qp_ex* qp) {
  begin_remote(qp, WrOpcode::kSend, 0, 0);
}

void wr_send_imm(ibv_qp_ex* qp, __be32 imm_data) {
  begin_remote(qp, WrOpcode::kSendWithImmediate, 0, 0, imm_data);
}

void wr_send_inv(ibv_qp_ex* qp, uint32_t invalidate_rkey) {
  begin_remote(qp, WrOpcode::kSendWithInvalidate, 0, 0, invalidate_rkey);
}

void wr_local_inv(ibv_qp_ex* qp, uint32_t invalidate_rkey) {
  begin_remote(qp, WrOpcode::kLocalInvalidate, 0, 0, invalidate_rkey);
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  SendWqe* wqe = begin(qp, WrOpcode::kBindMw);
  if (wqe == nullptr) return;
  if (const int error = check_bind(mw, *info)) {
    from(qp).builder.error = error;
    return;
  }
  wqe->rkey = mw->rkey;
  wqe->immediate_or_rkey = key_after_bind(*mw, rkey);
  wqe->remote_address = info->addr;
  wqe->bind = {info->length, info->mr == nullptr ? 0 : info->mr->lkey, info->mw_access_flags};
  mw->rkey = wqe->immediate_or_rkey;
}

// The eight bytes are taken at once: an inline payload.
void wr_atomic_write(ibv_qp_ex* verbs, uint32_t rkey, uint64_t remote_addr, const void* atomic_wr) {
  begin_remote(verbs, WrOpcode::kAtomicWrite, rkey, remote_addr);
  Qp& qp = from(verbs);
  SendWqe* wqe = current(qp);
  if (wqe == nullptr) return;
  std::memcpy(qp.builder.slot.inline_data, atomic_wr, kAtomicWriteSize);
  wqe->flags |= queue::kInline;
  wqe->length = kAtomicWriteSize;
}

void wr_flush(ibv_qp_ex* verbs, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type, uint8_t level) {
  SendWqe* wqe = begin(verbs, WrOpcode::kFlush);
  if (wqe == nullptr) return;
  if (length > UINT32_MAX || type == 0 || type > 3 || level > 1) from(verbs).builder.error = EINVAL;
  wqe->rkey = rkey;
  wqe->remote_address = remote_addr;
  wqe->operands.compare_add = length;
  wqe->operands.swap = static_cast<uint64_t>(type | level << 4);
}

void wr_set_ud_addr(ibv_qp_ex* verbs, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  Qp& qp = from(verbs);
  SendWqe* wqe = current(qp);
  if (wqe == nullptr) return;
  if (ah == nullptr || ah->pd->handle != qp.verbs.qp_base.pd->handle) {
    qp.builder.error = EINVAL;
    return;
  }
  wqe->ud = {from(ah).engine_handle, remote_qpn & wire::kMask24, remote_qkey};
}

void wr_set_xrc_srqn(ibv_qp_ex* verbs, uint32_t remote_srqn) {
  if (SendWqe* wqe = current(from(verbs))) wqe->set_xrc_srqn(remote_srqn & wire::kMask24);
}

void wr_set_sge_list(ibv_qp_ex* verbs, size_t num_sge, const ibv_sge* sg_list) {
  Qp& qp = from(verbs);
  SendWqe* wqe = current(qp);
  if (wqe == nullptr) return;
  uint64_t length = 0;
  for (size_t i = 0; i < num_sge; ++i) length += sg_list[i].length;
  if (num_sge > qp.send_queue->max_sge() || length > engine::Limits::kMaxMessage) {
    qp.builder.error = EINVAL;
    return;
  }
  wqe->sge_count = static_cast<uint8_t>(num_sge);
  wqe->length = static_cast<uint32_t>(length);
  for (size_t i = 0; i < num_sge; ++i) {
    qp.builder.slot.sges[i] = {sg_list[i].addr, sg_list[i].length, sg_list[i].lkey};
  }
}

void wr_set_sge(ibv_qp_ex* verbs, uint32_t lkey, uint64_t addr, uint32_t length) {
  const ibv_sge sge{addr, length, lkey};
  wr_set_sge_list(verbs, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* verbs, size_t num_buf, const ibv_data_buf* buf_list) {
  Qp& qp = from(verbs);
  SendWqe* wqe = current(qp);
  if (wqe == nullptr) return;
  size_t length = 0;
  for (size_t i = 0; i < num_buf; ++i) {
    const ibv_data_buf& buffer = buf_list[i];
    if (buffer.length > qp.send_queue->max_inline() - length) {
      qp.builder.error = EINVAL;
      return;
    }
    if (buffer.length != 0) std::memcpy(qp.builder.slot.inline_data + length, buffer.addr, buffer.length);
    length += buffer.length;
  }
  wqe->flags |= queue::kInline;
  wqe->length = static_cast<uint32_t>(length);
}

void wr_set_inline_data(ibv_qp_ex* verbs, void* addr, size_t length) {
  const ibv_data_buf buffer{addr, length};
  wr_set_inline_data_list(verbs, 1, &buffer);
}

void wr_start(ibv_qp_ex* verbs) {
  Qp& qp = from(verbs);
  if (orphaned(verbs->qp_base.context)) {
    qp.builder = {.error = EIO};
    return;
  }
  qp.send_lock.lock();
  qp.builder = {};
  if (!accepts_sends(engine::Engine::state(*qp.engine_qp))) qp.builder.error = EINVAL;
}

int wr_complete(ibv_qp_ex* verbs) {
  Qp& qp = from(verbs);
  if (refuses_orphan(verbs->qp_base.context)) return answer(EIO);
  finish_current(qp);
  const auto [count, error, slot] = qp.builder;
  if (error == 0 && count != 0) qp.send_queue->publish(count);
  qp.send_lock.unlock();
  if (error == 0 && count != 0) {
    qp.engine->doorbell(*qp.engine_qp);
    note_request(qp);
  }
  return answer(error);
}

void wr_abort(ibv_qp_ex* verbs) {
  from(verbs).send_lock.unlock();
}

}  // namespace

void fill_work_request_functions(Qp& owner, uint64_t send_ops) {
  ibv_qp_ex& qp = owner.verbs;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  if (qp.qp_base.qp_type == IBV_QPT_UD) qp.wr_set_ud_addr = wr_set_ud_addr;
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND) qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  if (send_ops & IBV_QP_EX_WITH_LOCAL_INV) qp.wr_local_inv = wr_local_inv;
  if (send_ops & IBV_QP_EX_WITH_BIND_MW) qp.wr_bind_mw = wr_bind_mw;
  if (send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE) qp.wr_atomic_write = wr_atomic_write;
  if (send_ops & kSendOpFlush) {
    const auto flush = wr_flush;
    std::memcpy(reinterpret_cast<uint8_t*>(&owner) + kWrFlushOffset, &flush, sizeof(flush));
  }
  if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE) qp.wr_rdma_write = wr_rdma_write;
  if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) qp.wr_rdma_write_imm = wr_rdma_write_imm;
  if (send_ops & IBV_QP_EX_WITH_SEND) qp.wr_send = wr_send;
  if (send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM) qp.wr_send_imm = wr_send_imm;
  if (send_ops & IBV_QP_EX_WITH_SEND_WITH_INV) qp.wr_send_inv = wr_send_inv;
  if (send_ops & IBV_QP_EX_WITH_RDMA_READ) qp.wr_rdma_read = wr_rdma_read;
  if (send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  if (send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
}

}  // namespace uroce::verbs

// Null for a QP that was created without send operations: it cannot be used with ibv_wr_*.
extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* verbs) {
  uroce::verbs::Qp& qp = uroce::verbs::from(verbs);
  return qp.send_ops != 0 ? &qp.verbs : nullptr;
}

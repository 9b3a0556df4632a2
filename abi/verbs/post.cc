// SPDX-License-Identifier: BSD-2-Clause
// ibv_post_send and ibv_post_recv: work requests become WQEs in the engine's rings. The data path of the shim.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/send_check.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

using queue::SendQueue;
using queue::SendWqe;
using queue::WrOpcode;

constexpr uint32_t kVerbsFlush = static_cast<uint32_t>(WrOpcode::kFlush);  // rdma-core 45

void copy_bind(const ibv_send_wr& wr, SendWqe& wqe) {
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  wqe.rkey = wr.bind_mw.mw->rkey;
  wqe.immediate_or_rkey = key_after_bind(*wr.bind_mw.mw, wr.bind_mw.rkey);
  wqe.remote_address = info.addr;
  wqe.bind = {info.length, info.mr == nullptr ? 0 : info.mr->lkey, info.mw_access_flags};
}

// 0 or an errno value.
int copy_operands(const Qp& qp, const ibv_send_wr& wr, SendWqe& wqe) {
  wqe.immediate_or_rkey = wr.imm_data;
  switch (qp.verbs.qp_base.qp_type) {
    case IBV_QPT_UD:
      if (wr.wr.ud.ah == nullptr || wr.wr.ud.ah->pd->handle != qp.verbs.qp_base.pd->handle) return EINVAL;
      wqe.ud = {from(wr.wr.ud.ah).engine_handle, wr.wr.ud.remote_qpn & wire::kMask24, wr.wr.ud.remote_qkey};
      return 0;
    case IBV_QPT_XRC_SEND:
      wqe.set_xrc_srqn(wr.qp_type.xrc.remote_srqn);
      break;
    default:
      break;
  }
  if (wqe.opcode == WrOpcode::kBindMw) {
    if (const int error = check_bind(wr.bind_mw.mw, wr.bind_mw.bind_info)) return error;
    copy_bind(wr, wqe);
  } else if (is_atomic(wqe.opcode)) {
    wqe.remote_address = wr.wr.atomic.remote_addr;
    wqe.operands.compare_add = wr.wr.atomic.compare_add;
    wqe.operands.swap = wr.wr.atomic.swap;
    wqe.rkey = wr.wr.atomic.rkey;
  } else {
    wqe.remote_address = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  return 0;
}

// `room` bytes at most, whatever another thread makes of the list meanwhile.
void copy_inline(std::span<const ibv_sge> sges, uint8_t* to, uint32_t room) {
  for (const ibv_sge& sge : sges) {
    const uint32_t listed = sge.length;
    const uint32_t size = std::min(listed, room);
    if (size == 0) continue;
    std::memcpy(to, reinterpret_cast<const void*>(sge.addr), size);
    to += size;
    room -= size;
  }
}

// Fills the slot `ahead` places after the last published one. 0, EINVAL or ENOMEM.
int fill_slot(Qp& qp, const ibv_send_wr& wr, uint32_t ahead) {
  SendQueue& queue = *qp.send_queue;
  const uint32_t verbs_opcode = number_in(wr.opcode);
  // A FLUSH has no place in ibv_send_wr: ibv_wr_flush() alone posts it.
  if (!is_supported(qp.send_opcodes, verbs_opcode) || verbs_opcode == kVerbsFlush || wr.num_sge < 0) return EINVAL;
  const auto opcode = static_cast<WrOpcode>(verbs_opcode);
  const uint8_t flags = wqe_flags(wr.send_flags);
  const auto count = static_cast<uint32_t>(wr.num_sge);
  const bool is_inline = (flags & queue::kInline) != 0;
  if (!is_inline && count > queue.max_sge()) return EINVAL;
  uint64_t length = 0;
  for (uint32_t i = 0; i < count; ++i) length += wr.sg_list[i].length;
  if (const int error = check_length(opcode, flags, length, queue.max_inline())) return error;

  SendQueue::Slot slot;
  if (!queue.reserve(ahead, slot)) return ENOMEM;
  SendWqe& wqe = *slot.wqe;
  wqe.wr_id = wr.wr_id;
  wqe.opcode = opcode;
  wqe.flags = flags;
  wqe.length = static_cast<uint32_t>(length);
  wqe.sge_count = is_inline ? 0 : static_cast<uint8_t>(count);
  if (const int error = copy_operands(qp, wr, wqe)) return error;
  // The application's handle says from now on what the window will be called.
  if (opcode == WrOpcode::kBindMw) wr.bind_mw.mw->rkey = wqe.immediate_or_rkey;
  if (is_inline) {
    copy_inline({wr.sg_list, count}, slot.inline_data, wqe.length);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      slot.sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
    }
  }
  return 0;
}

// The receive request `ahead` places after the last published one. 0, EINVAL or ENOMEM.
int fill_receive(queue::ReceiveQueue& queue, const ibv_recv_wr& wr, uint32_t ahead) {
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > queue.max_sge()) return EINVAL;
  const auto count = static_cast<uint32_t>(wr.num_sge);
  queue::Sge* const sges = queue.reserve(ahead, wr.wr_id, count);
  if (sges == nullptr) return ENOMEM;
  for (uint32_t i = 0; i < count; ++i) sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  return 0;
}

// As much of the list as can be posted, all at once; `wr` is then what could not be.
int post_receives(queue::ReceiveQueue& queue, ibv_recv_wr*& wr) {
  uint32_t filled = 0;
  int error = 0;
  for (; wr != nullptr; wr = wr->next, ++filled) {
    error = fill_receive(queue, *wr, filled);
    if (error != 0) break;
  }
  if (filled != 0) queue.publish(filled);
  return error;
}

template <class WorkRequest>
int refuse(WorkRequest* wr, WorkRequest** bad_wr) {
  *bad_wr = wr;
  return answer(EIO);
}

}  // namespace

int post_send(ibv_qp* verbs, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (refuses_orphan(verbs->context)) return refuse(wr, bad_wr);
  Qp& qp = from(verbs);
  engine::Engine::prefetch(*qp.engine_qp);
  int error = 0;
  uint32_t filled = 0;
  {
    std::lock_guard guard(qp.send_lock);
    if (!accepts_sends(engine::Engine::state(*qp.engine_qp))) error = EINVAL;
    for (; error == 0 && wr != nullptr; wr = wr->next) {
      error = fill_slot(qp, *wr, filled);
      if (error != 0) break;
      ++filled;
    }
    if (filled != 0) qp.send_queue->publish(filled);
  }
  if (filled != 0) {
    qp.engine->doorbell(*qp.engine_qp);
    note_request(qp);
  }
  if (error != 0) *bad_wr = wr;
  return answer(error);
}

int post_recv(ibv_qp* verbs, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (refuses_orphan(verbs->context)) return refuse(wr, bad_wr);
  Qp& qp = from(verbs);
  int error = 0;
  {
    std::lock_guard guard(qp.receive_lock);
    // With a shared receive queue, or as an XRC QP, it has no receive queue of its own.
    if (qp.receive_queue == nullptr || engine::Engine::state(*qp.engine_qp) == transport::QpState::kReset) {
      error = EINVAL;
    } else {
      error = post_receives(*qp.receive_queue, wr);
    }
  }
  qp.engine->receive_doorbell(*qp.engine_qp);
  if (error != 0) *bad_wr = wr;
  return answer(error);
}

int post_srq_recv(ibv_srq* verbs, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (refuses_orphan(verbs->context)) return refuse(wr, bad_wr);
  Srq& srq = from(verbs);
  std::lock_guard guard(srq.receive_lock);
  const int error = post_receives(*srq.receive_queue, wr);
  if (error != 0) *bad_wr = wr;
  return answer(error);
}

}  // namespace uroce::verbs

// ibv_post_send and ibv_post_recv: work requests become WQEs in the engine's rings. The data path of the shim.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "verbs_shim/dispatch.h"
#include "verbs_shim/objects.h"
#include "verbs_shim/send_check.h"
#include "verbs_shim/values.h"

namespace uroce::verbs {
namespace {

using queue::SendQueue;
using queue::SendWqe;
using queue::WrOpcode;

void copy_operands(const ibv_send_wr& wr, SendWqe& wqe) {
  if (is_atomic(wqe.opcode)) {
    wqe.remote_address = wr.wr.atomic.remote_addr;
    wqe.compare_add = wr.wr.atomic.compare_add;
    wqe.swap = wr.wr.atomic.swap;
    wqe.rkey = wr.wr.atomic.rkey;
  } else {
    wqe.remote_address = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  wqe.immediate_or_rkey = wr.imm_data;
}

void copy_inline(const ibv_send_wr& wr, uint8_t* to) {
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
    to += sge.length;
  }
}

// Fills the slot `ahead` places after the last published one. 0, EINVAL or ENOMEM.
int fill_slot(SendQueue& queue, const ibv_send_wr& wr, uint32_t ahead) {
  const uint32_t verbs_opcode = number_in(wr.opcode);
  if (!is_supported(verbs_opcode) || wr.num_sge < 0) return EINVAL;
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
  copy_operands(wr, wqe);
  if (is_inline) {
    copy_inline(wr, slot.inline_data);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      slot.sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
    }
  }
  return 0;
}

int post_one_receive(queue::ReceiveQueue& queue, const ibv_recv_wr& wr) {
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > queue.max_sge()) return EINVAL;
  queue::Sge sges[queue::kMaxSge];
  const auto count = static_cast<uint32_t>(wr.num_sge);
  for (uint32_t i = 0; i < count; ++i) sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  return queue.post(wr.wr_id, {sges, count}) ? 0 : ENOMEM;
}

}  // namespace

int post_send(ibv_qp* verbs, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = from(verbs);
  int error = 0;
  uint32_t filled = 0;
  {
    std::lock_guard guard(qp.send_lock);
    if (!accepts_sends(engine::Engine::state(*qp.engine_qp))) error = EINVAL;
    for (; error == 0 && wr != nullptr; wr = wr->next) {
      error = fill_slot(*qp.send_queue, *wr, filled);
      if (error != 0) break;
      ++filled;
    }
    if (filled != 0) qp.send_queue->publish(filled);
  }
  if (filled != 0) qp.engine->doorbell(*qp.engine_qp);
  if (error != 0) *bad_wr = wr;
  return error;
}

int post_recv(ibv_qp* verbs, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = from(verbs);
  int error = 0;
  {
    std::lock_guard guard(qp.receive_lock);
    if (engine::Engine::state(*qp.engine_qp) == transport::QpState::kReset) error = EINVAL;
    for (; error == 0 && wr != nullptr; wr = wr->next) {
      error = post_one_receive(*qp.receive_queue, *wr);
      if (error != 0) break;
    }
  }
  qp.engine->receive_doorbell(*qp.engine_qp);
  if (error != 0) *bad_wr = wr;
  return error;
}

}  // namespace uroce::verbs

// SPDX-License-Identifier: BSD-2-Clause
// Extended completion queues: one completion at a time, read field by field. ibv_start_poll takes the first and keeps
// the queue for the calling thread until ibv_end_poll; both work on Cq::current and Cq::wallclock.

#include <cerrno>

#include "abi/verbs/cq.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

// All but tag matching. There are neither raw packets nor flow rules, so the VLAN and the flow tag are always 0.
constexpr uint64_t kSupportedFields = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_CVLAN |
                                      IBV_WC_EX_WITH_FLOW_TAG;

bool take_next(Cq& cq) {
  note_answer(cq, 1);
  if (cq.poll(1, [&cq](const queue::Cqe& cqe) { cq.current = cqe; }) == 0) return false;
  cq.wr_id = cq.current.wr_id;
  ibv_cq_ex& verbs = cq;
  verbs.status = static_cast<ibv_wc_status>(cq.current.status);
  return true;
}

void end_poll(ibv_cq_ex* verbs) {
  from(verbs).extended_poll_lock.unlock();
}

int start_poll(ibv_cq_ex* verbs, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return answer(EINVAL);
  Cq& cq = from(verbs);
  if (orphaned(cq.context)) return ENOENT;
  const auto take_and_keep = [&] {
    cq.extended_poll_lock.lock();
    cq.wallclock.begin_batch();
    if (take_next(cq)) return true;
    end_poll(verbs);  // the application calls it after success only
    return false;
  };
  if (take_and_keep()) return 0;
  bool taken = false;
  progress(cq, [&] { return taken = take_and_keep(); });  // others that poll this queue do not wait for a whole round
  return taken ? 0 : ENOENT;
}

int next_poll(ibv_cq_ex* verbs) {
  if (orphaned(verbs->context)) return ENOENT;
  return take_next(from(verbs)) ? 0 : ENOENT;
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(from(cq).current.opcode);
}
uint32_t read_vendor_err(ibv_cq_ex* cq) {
  return from(cq).current.vendor_error;
}
uint32_t read_byte_len(ibv_cq_ex* cq) {
  return from(cq).current.byte_length;
}
__be32 read_imm_data(ibv_cq_ex* cq) {
  return from(cq).current.immediate_or_rkey;
}
uint32_t read_qp_num(ibv_cq_ex* cq) {
  return from(cq).current.qpn;
}
uint32_t read_src_qp(ibv_cq_ex* cq) {
  return from(cq).current.source_qpn;
}
unsigned int read_wc_flags(ibv_cq_ex* cq) {
  return from(cq).current.flags;
}
uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return from(cq).current.timestamp;
}
// RoCE has no LIDs, and service levels are not carried: ConnectX tells the IP version there.
uint32_t read_slid(ibv_cq_ex*) {
  return 0;
}
uint8_t read_sl(ibv_cq_ex* cq) {
  return static_cast<uint8_t>(from(cq).current.network_type);
}
uint8_t read_dlid_path_bits(ibv_cq_ex*) {
  return 0;
}
uint16_t read_cvlan(ibv_cq_ex*) {
  return 0;
}
uint32_t read_flow_tag(ibv_cq_ex*) {
  return 0;
}

uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  return from(cq).wallclock.of(from(cq).current.timestamp);
}

// Functions for the fields that were asked for; status, opcode, vendor error and flags are always there.
void fill_readers(ibv_cq_ex& cq, uint64_t fields) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_wc_flags = read_wc_flags;
  if (fields & IBV_WC_EX_WITH_BYTE_LEN) cq.read_byte_len = read_byte_len;
  if (fields & IBV_WC_EX_WITH_IMM) cq.read_imm_data = read_imm_data;
  if (fields & IBV_WC_EX_WITH_QP_NUM) cq.read_qp_num = read_qp_num;
  if (fields & IBV_WC_EX_WITH_SRC_QP) cq.read_src_qp = read_src_qp;
  if (fields & IBV_WC_EX_WITH_SLID) cq.read_slid = read_slid;
  if (fields & IBV_WC_EX_WITH_SL) cq.read_sl = read_sl;
  if (fields & IBV_WC_EX_WITH_DLID_PATH_BITS) cq.read_dlid_path_bits = read_dlid_path_bits;
  if (fields & IBV_WC_EX_WITH_CVLAN) cq.read_cvlan = read_cvlan;
  if (fields & IBV_WC_EX_WITH_FLOW_TAG) cq.read_flow_tag = read_flow_tag;
  if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) cq.read_completion_ts = read_completion_ts;
  if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
    cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
  }
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if (attr->comp_mask & ~kKnown) return fail(EOPNOTSUPP);
  if (attr->wc_flags & ~kSupportedFields) return fail(EOPNOTSUPP);
  const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) ? attr->flags : 0;
  if (flags & ~uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN})
    return fail(EOPNOTSUPP);
  CqRequest request{attr->cqe, attr->cq_context, attr->channel, attr->comp_vector};
  if (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) request.overrun = queue::CompletionQueue::Overrun::kOverwrite;
  if (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) request.consumers = queue::CompletionQueue::Consumers::kOne;
  if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
    if (attr->parent_domain == nullptr || from(attr->parent_domain).parent == nullptr) return fail(EINVAL);
    request.parent_domain = &from(attr->parent_domain);
  }
  Cq* cq = create_cq(context, request);
  if (cq == nullptr) return nullptr;
  fill_readers(*cq, attr->wc_flags);
  return cq;
}

}  // namespace uroce::verbs

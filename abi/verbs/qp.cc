// SPDX-License-Identifier: BSD-2-Clause
// Queue pairs: creation, state changes, queries. The engine judges transitions and attribute masks
// (engine/transport/common/qp_state.h); here attributes change their form.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>

#include "abi/verbs/async_events.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/qp_ex.h"
#include "abi/verbs/send_check.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

using engine::Engine;
using engine::Limits;
using transport::QpAttributes;
using transport::QpState;

// What a queue pair is made from, by either call.
struct QpRequest {
  ibv_qp_init_attr& attr;
  ibv_context* context;
  ibv_pd* pd = nullptr;      // of an XRC target: nothing that it uses
  ibv_xrcd* xrcd = nullptr;  // XRC targets only
  uint64_t send_ops = 0;
  uint32_t create_flags = 0;
};

bool is_xrc_target(const QpRequest& request) {
  return request.attr.qp_type == IBV_QPT_XRC_RECV;
}
bool has_receive_queue(const QpRequest& request) {
  return request.attr.srq == nullptr && !is_xrc_target(request) && request.attr.qp_type != IBV_QPT_XRC_SEND;
}

// EOPNOTSUPP: not a type of QP that exists here. EINVAL: something is missing, or beyond the limits.
int check_request(const QpRequest& request) {
  const ibv_qp_init_attr& attr = request.attr;
  const bool target = number_in(attr.qp_type) == IBV_QPT_XRC_RECV;
  if (opcodes_of(static_cast<ibv_qp_type>(number_in(attr.qp_type))) == 0 && !target) return EOPNOTSUPP;
  if (target) return request.xrcd == nullptr ? EINVAL : 0;
  if (request.pd == nullptr || attr.send_cq == nullptr) return EINVAL;
  const bool initiator = attr.qp_type == IBV_QPT_XRC_SEND;
  if (!initiator && attr.recv_cq == nullptr) return EINVAL;
  if (attr.srq != nullptr && (initiator || from(attr.srq).domain)) return EINVAL;
  const ibv_qp_cap& cap = attr.cap;
  const bool receives = has_receive_queue(request);
  const bool fits = cap.max_send_wr <= Limits::kMaxWr && cap.max_send_sge <= Limits::kMaxSge &&
                    cap.max_inline_data <= Limits::kMaxInline &&
                    (!receives || (cap.max_recv_wr <= Limits::kMaxWr && cap.max_recv_sge <= Limits::kMaxSge));
  return fits ? 0 : EINVAL;
}

// What the queues really hold; nothing where a type has none.
ibv_qp_cap real_capabilities(const Qp& qp) {
  ibv_qp_cap cap{};
  if (qp.send_opcodes != 0) {
    cap.max_send_wr = qp.send_queue->depth();
    cap.max_send_sge = qp.send_queue->max_sge();
    cap.max_inline_data = qp.send_queue->max_inline();
  }
  if (qp.receive_queue != nullptr) {
    cap.max_recv_wr = qp.receive_queue->depth();
    cap.max_recv_sge = qp.receive_queue->max_sge();
  }
  return cap;
}

engine::QpInit engine_init(const QpRequest& request, QpCore& core) {
  const ibv_qp_init_attr& attr = request.attr;
  engine::QpInit init;
  init.type = static_cast<transport::QpType>(attr.qp_type);
  init.events = &from(request.context).on_event;
  init.context = &core;
  if (is_xrc_target(request)) {
    init.xrcd = from(request.xrcd).domain->number;
    return init;
  }
  init.pd = request.pd->handle;
  init.max_send_wr = attr.cap.max_send_wr;
  init.max_send_sge = attr.cap.max_send_sge;
  // What fits where the SGEs are costs nothing. Programs take it for granted, as adapters and rxe give it
  // (rdma_xclient).
  const auto room_of_sges = static_cast<uint32_t>(sizeof(queue::Sge)) * std::max(init.max_send_sge, 1u);
  init.max_inline = std::max(attr.cap.max_inline_data, room_of_sges);
  if (request.send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE) init.max_inline = std::max(init.max_inline, kAtomicWriteSize);
  if (has_receive_queue(request)) {
    init.max_recv_wr = attr.cap.max_recv_wr;
    init.max_recv_sge = attr.cap.max_recv_sge;
  }
  init.signal_all = attr.sq_sig_all != 0;
  init.block_own_multicast = (request.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
  init.send_cq = &from(attr.send_cq);
  if (attr.qp_type != IBV_QPT_XRC_SEND) init.recv_cq = &from(attr.recv_cq);
  if (attr.srq != nullptr) init.srq = from(attr.srq).engine_srq;
  return init;
}

// On a parent domain whose application allocates. 0 or ENOMEM.
int allocate_queues(const QpRequest& request, Qp& qp, engine::QpInit& init) {
  if (is_xrc_target(request)) return 0;
  const QueueAllocator& allocator = from(request.pd).allocator;
  const size_t send_bytes = queue::SendQueue::bytes(init.max_send_wr, init.max_send_sge, init.max_inline);
  if (const int error =
          qp.send_memory.allocate(allocator, send_bytes, queue::SendQueue::kAlignment, QueueKind::kSend)) {
    return error;
  }
  init.send_memory = qp.send_memory.data();
  if (!has_receive_queue(request)) return 0;
  const size_t receive_bytes = queue::ReceiveQueue::bytes(init.max_recv_wr, init.max_recv_sge);
  const int error =
      qp.receive_memory.allocate(allocator, receive_bytes, queue::SendQueue::kAlignment, QueueKind::kReceive);
  init.receive_memory = qp.receive_memory.data();
  return error;
}

void fill_verbs_qp(const QpRequest& request, ibv_qp& verbs) {
  const ibv_qp_init_attr& attr = request.attr;
  verbs.context = request.context;
  verbs.qp_context = attr.qp_context;
  verbs.handle = next_handle();
  verbs.state = IBV_QPS_RESET;
  verbs.qp_type = attr.qp_type;
  verbs.mutex = PTHREAD_MUTEX_INITIALIZER;
  verbs.cond = PTHREAD_COND_INITIALIZER;
  // Also that of an XRC target, as libibverbs has it: librdmacm makes the target's shared receive queue in it.
  verbs.pd = request.pd;
  if (is_xrc_target(request)) return;
  verbs.send_cq = attr.send_cq;
  verbs.srq = attr.srq;
  if (attr.qp_type != IBV_QPT_XRC_SEND) verbs.recv_cq = attr.recv_cq;
}

// What a QP uses lives as long as it.
void count_uses(const ibv_qp& verbs, int change) {
  const auto count = [change](auto& users) {
    if (change > 0) {
      ++users;
    } else {
      --users;
    }
  };
  if (verbs.qp_type == IBV_QPT_XRC_RECV) {  // uses no PD, and nothing else keeps the context
    count(from(verbs.context).users);
    return;
  }
  count(from(verbs.pd).users);
  if (verbs.send_cq != nullptr) count(from(verbs.send_cq).users);
  if (verbs.recv_cq != nullptr) count(from(verbs.recv_cq).users);
  if (verbs.srq != nullptr) count(from(verbs.srq).users);
}

// Makes `qp` a handle of its core.
void attach(Qp& qp) {
  {
    std::lock_guard guard(qp.core->mutex);
    qp.core->handles.insert(&qp);
  }
  from(qp.verbs.qp_base.context).qps.add(&qp);
}

void learn_engine_qp(Qp& qp) {
  qp.engine_qp = qp.core->engine_qp;
  qp.verbs.qp_base.qp_num = Engine::qpn(*qp.engine_qp);
  qp.send_queue = &Engine::send_queue(*qp.engine_qp);
}

void register_target(Qp& qp, const std::shared_ptr<XrcDomain>& domain) {
  qp.core->domain = domain;
  ++domain->users;
  std::lock_guard guard(domain->mutex);
  domain->targets.insert(qp.core);
}

// Null with errno set on failure. Writes the real capabilities back to the attributes.
ibv_qp* create_qp(const QpRequest& request) {
  if (refuses_orphan(request.context)) return fail(EIO);
  if (const int error = check_request(request)) return fail(error);
  Context& context = from(request.context);
  std::unique_ptr<Qp> qp;
  const int error = without_exceptions([&] {
    qp = std::make_unique<Qp>(request.pd == nullptr || from(request.pd).shared_by_threads());
    qp->core = std::make_shared<QpCore>();
    qp->engine = context.engine.get();
    engine::QpInit init = engine_init(request, *qp->core);
    if (const int failure = allocate_queues(request, *qp, init)) return failure;
    // Complete before the engine has it: an event may name it at once.
    fill_verbs_qp(request, qp->verbs.qp_base);
    attach(*qp);
    return qp->engine->create_qp(init, qp->core->engine_qp);
  });
  if (error != 0) {
    context.qps.remove(qp.get());
    return fail(error);
  }
  learn_engine_qp(*qp);
  if (has_receive_queue(request)) qp->receive_queue = &Engine::receive_queue(*qp->engine_qp);
  if (is_xrc_target(request)) register_target(*qp, from(request.xrcd).domain);
  qp->signal_all = !is_xrc_target(request) && request.attr.sq_sig_all != 0;
  qp->create_flags = request.create_flags;
  qp->send_opcodes = opcodes_of(request.attr.qp_type);
  qp->send_ops = request.send_ops;
  if (request.send_ops != 0) fill_work_request_functions(*qp, request.send_ops);
  request.attr.cap = real_capabilities(*qp);
  count_uses(qp->verbs.qp_base, +1);
  return &qp.release()->verbs.qp_base;
}

int attributes_from_verbs(const ibv_qp_attr& from, uint32_t mask, QpAttributes& to) {
  if ((mask & IBV_QP_PATH_MTU) && mtu_from_verbs(number_in(from.path_mtu)) == 0) return EINVAL;
  if ((mask & IBV_QP_PORT) && from.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) && from.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_STATE) && number_in(from.qp_state) > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_DEST_QPN) && from.dest_qp_num > wire::kMask24) return EINVAL;
  if (mask & IBV_QP_AV) {
    if (const int error = address_from_verbs(from.ah_attr, to.address)) return error;
  }
  to.state = static_cast<QpState>(number_in(from.qp_state));
  to.current_state = static_cast<QpState>(number_in(from.cur_qp_state));
  to.access = from.qp_access_flags;
  to.path_mtu = mtu_from_verbs(number_in(from.path_mtu));
  to.qkey = from.qkey;
  to.rq_psn = wire::Psn(from.rq_psn);
  to.sq_psn = wire::Psn(from.sq_psn);
  to.dest_qpn = wire::Qpn(from.dest_qp_num);
  to.pkey_index = from.pkey_index;
  to.port = from.port_num;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.timeout = from.timeout;
  to.retry_count = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.path_mig_state = static_cast<uint8_t>(number_in(from.path_mig_state));
  to.en_sqd_async_notify = from.en_sqd_async_notify != 0;
  return 0;
}

ibv_qp_attr attributes_to_verbs(const QpAttributes& from) {
  ibv_qp_attr to{};
  to.qp_state = static_cast<ibv_qp_state>(from.state);
  to.cur_qp_state = to.qp_state;
  to.path_mtu = mtu_to_verbs(from.path_mtu);
  to.path_mig_state = static_cast<ibv_mig_state>(from.path_mig_state);
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn.value();
  to.sq_psn = from.sq_psn.value();
  to.dest_qp_num = from.dest_qpn.value();
  to.qp_access_flags = from.access;
  to.ah_attr = address_to_verbs(from.address);
  to.pkey_index = from.pkey_index;
  to.en_sqd_async_notify = from.en_sqd_async_notify ? 1 : 0;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_count;
  to.rnr_retry = from.rnr_retry;
  return to;
}

// Each half of an XRC connection may be told what the other half needs; the kernel ignores that.
uint32_t mask_of_type(ibv_qp_type type, uint32_t mask) {
  switch (type) {
    case IBV_QPT_XRC_SEND:
      return mask & ~uint32_t{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
    case IBV_QPT_XRC_RECV:
      return mask & ~uint32_t{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
    default:
      return mask;
  }
}

// In the application's struct, by whichever thread learned of it last.
void show_state(ibv_qp& verbs, ibv_qp_state state) {
  std::atomic_ref(verbs.state).store(state, std::memory_order_relaxed);
}

// RESET empties the queues: nobody may be posting meanwhile.
int modify_engine_qp(Qp& qp, const QpAttributes& attributes, uint32_t mask) {
  const bool to_reset = (mask & IBV_QP_STATE) && attributes.state == QpState::kReset;
  std::unique_lock send_guard(qp.send_lock, std::defer_lock);
  std::unique_lock receive_guard(qp.receive_lock, std::defer_lock);
  if (to_reset) {
    send_guard.lock();
    receive_guard.lock();
  }
  return qp.engine->modify_qp(*qp.engine_qp, attributes, mask);
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr->comp_mask & ~kKnown) return fail(EOPNOTSUPP);
  // The extended struct begins with the plain one.
  QpRequest request{.attr = *reinterpret_cast<ibv_qp_init_attr*>(attr), .context = context};
  if (attr->comp_mask & IBV_QP_INIT_ATTR_PD) request.pd = attr->pd;
  if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) request.xrcd = attr->xrcd;
  if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) request.create_flags = attr->create_flags;
  if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) request.send_ops = attr->send_ops_flags;
  const auto type = static_cast<ibv_qp_type>(number_in(attr->qp_type));
  const uint32_t flags = type == IBV_QPT_UD ? uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB} : 0;
  if (request.create_flags & ~flags) return fail(EOPNOTSUPP);
  if (request.send_ops & ~supported_send_ops(type)) return fail(EOPNOTSUPP);
  return create_qp(request);
}

// A further handle for an XRC target.
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr uint32_t kKnown = kNeeded | IBV_QP_OPEN_ATTR_CONTEXT;
  if (attr->comp_mask & ~kKnown) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->xrcd == nullptr || attr->qp_type != IBV_QPT_XRC_RECV) {
    return fail(EINVAL);
  }
  if (refuses_orphan(context)) return fail(EIO);
  const std::shared_ptr<XrcDomain>& domain = from(attr->xrcd).domain;
  std::unique_ptr<Qp> qp;
  const int error = without_exceptions([&] {
    qp = std::make_unique<Qp>(true);
    qp->engine = from(context).engine.get();
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) init.qp_context = attr->qp_context;
    fill_verbs_qp({.attr = init, .context = context, .xrcd = attr->xrcd}, qp->verbs.qp_base);
    std::lock_guard guard(domain->mutex);  // the last handle does not go meanwhile
    for (const std::shared_ptr<QpCore>& core : domain->targets) {
      if (Engine::qpn(*core->engine_qp) == attr->qp_num) qp->core = core;
    }
    if (!qp->core) return EINVAL;
    learn_engine_qp(*qp);
    attach(*qp);
    return 0;
  });
  if (error != 0) return fail(error);
  count_uses(qp->verbs.qp_base, +1);
  return &qp.release()->verbs.qp_base;
}

void release_engine_qp(Qp& qp) {
  QpCore& core = *qp.core;
  {
    std::unique_lock<std::mutex> domain_guard;  // nobody opens it while the last handle goes
    if (core.domain) domain_guard = std::unique_lock(core.domain->mutex);
    {
      std::lock_guard guard(core.mutex);
      core.handles.erase(&qp);
      if (!core.handles.empty()) return;
    }
    if (core.domain) {
      core.domain->targets.erase(qp.core);
      --core.domain->users;
    }
  }
  qp.engine->destroy_qp(core.engine_qp);
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return create_qp({.attr = *attr, .context = pd->context, .pd = pd});
}

int ibv_modify_qp(ibv_qp* verbs, ibv_qp_attr* attr, int attr_mask) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  const uint32_t mask = mask_of_type(verbs->qp_type, static_cast<uint32_t>(attr_mask));
  QpAttributes attributes;
  if (const int error = attributes_from_verbs(*attr, mask, attributes)) return answer(error);
  Qp& qp = from(verbs);
  if (const int error = without_exceptions([&] { return modify_engine_qp(qp, attributes, mask); }))
    return answer(error);
  if (mask & IBV_QP_STATE) show_state(*verbs, attr->qp_state);
  return 0;
}

int ibv_query_qp(ibv_qp* verbs, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  Qp& qp = from(verbs);
  *attr = attributes_to_verbs(qp.engine->query_qp(*qp.engine_qp));
  attr->cap = real_capabilities(qp);
  *init_attr = {verbs->qp_context, verbs->send_cq, verbs->recv_cq,       verbs->srq,
                attr->cap,         verbs->qp_type, qp.signal_all ? 1 : 0};
  show_state(*verbs, attr->qp_state);
  return 0;
}

int ibv_destroy_qp(ibv_qp* verbs) {
  if (verbs == nullptr) return answer(EINVAL);  // by qperf 0.4.11: rdma_destroy_qp() of an id that has none
  Qp& qp = from(verbs);
  if (orphaned(verbs->context)) return abandon(qp);
  if (from(verbs->context).qps.remove(&qp)) release_engine_qp(qp);  // else the device has been closed
  drain_events(qp);
  qp.send_memory.release();
  qp.receive_memory.release();
  ibv_context* const context = verbs->context;
  const bool keeps_context = verbs->pd == nullptr;
  if (!keeps_context) count_uses(*verbs, -1);
  delete &qp;
  if (keeps_context) drop_user(from(context));
  return 0;
}

// Of what comes into this QP's memory: SENDs and WRITEs of the peer, READs of its own. The responder and the requester
// of RC, which XRC has as well, place each byte behind those in front of it (engine/memory/ordered_copy.h). UC and UD
// do so too, but nothing proves it. As in rdma-core, it is said of x86 only.
int ibv_query_qp_data_in_order(ibv_qp* verbs, ibv_wr_opcode opcode, uint32_t flags) {
#if defined(__x86_64__)
  constexpr uint32_t kReturnCaps = 1 << 0, kDeviceOnly = 1 << 1;  // IBV_QUERY_QP_DATA_IN_ORDER_..., rdma-core 49 and 60
  constexpr int kWholeMessage = 1 << 0, kAligned128Bytes = 1 << 1;
  constexpr uint32_t kComing = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_SEND |
                               1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_SEND_WITH_INV;
  constexpr uint32_t kFetched = 1u << IBV_WR_RDMA_READ;
  const unsigned type = number_in(verbs->qp_type);
  const uint32_t placed = (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV ? kComing : 0) |
                          (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND ? kFetched : 0);
  const unsigned number = number_in(opcode);
  if ((flags & ~(kReturnCaps | kDeviceOnly)) != 0 || number >= 32 || (placed >> number & 1) == 0) return 0;
  return kWholeMessage | ((flags & kReturnCaps) != 0 ? kAligned128Bytes : 0);
#else
  static_cast<void>(verbs), static_cast<void>(opcode), static_cast<void>(flags);
  return 0;
#endif
}

}  // extern "C"

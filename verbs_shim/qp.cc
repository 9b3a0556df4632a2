// Queue pairs: creation, state changes, queries. The engine judges transitions and attribute masks
// (engine/transport/qp_state.h); here attributes change their form.

#include <cerrno>
#include <memory>
#include <mutex>

#include "verbs_shim/async_events.h"
#include "verbs_shim/dispatch.h"
#include "verbs_shim/objects.h"
#include "verbs_shim/qp_ex.h"
#include "verbs_shim/values.h"

namespace uroce::verbs {
namespace {

using engine::Engine;
using engine::Limits;
using transport::QpAttributes;
using transport::QpState;

int check_init_attributes(const ibv_qp_init_attr& attr) {
  if (number_in(attr.qp_type) != IBV_QPT_RC || attr.srq != nullptr) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  const ibv_qp_cap& cap = attr.cap;
  const bool fits = cap.max_send_wr <= Limits::kMaxWr && cap.max_recv_wr <= Limits::kMaxWr &&
                    cap.max_send_sge <= Limits::kMaxSge && cap.max_recv_sge <= Limits::kMaxSge &&
                    cap.max_inline_data <= Limits::kMaxInline;
  return fits ? 0 : EINVAL;
}

// What the queues really hold.
ibv_qp_cap real_capabilities(const Qp& qp) {
  return {qp.send_queue->depth(), qp.receive_queue->depth(), qp.send_queue->max_sge(), qp.receive_queue->max_sge(),
          qp.send_queue->max_inline()};
}

engine::QpInit engine_init(ibv_pd* pd, const ibv_qp_init_attr& attr, Qp& qp) {
  engine::QpInit init;
  init.type = static_cast<transport::QpType>(attr.qp_type);
  init.pd = pd->handle;
  init.max_send_wr = attr.cap.max_send_wr;
  init.max_recv_wr = attr.cap.max_recv_wr;
  init.max_send_sge = attr.cap.max_send_sge;
  init.max_recv_sge = attr.cap.max_recv_sge;
  init.max_inline = attr.cap.max_inline_data;
  init.signal_all = attr.sq_sig_all != 0;
  init.send_cq = &from(attr.send_cq);
  init.recv_cq = &from(attr.recv_cq);
  init.events = &from(pd->context).on_event;
  init.context = &qp;
  return init;
}

void fill_verbs_qp(ibv_pd* pd, const ibv_qp_init_attr& attr, uint32_t qpn, ibv_qp& verbs) {
  verbs.context = pd->context;
  verbs.qp_context = attr.qp_context;
  verbs.pd = pd;
  verbs.send_cq = attr.send_cq;
  verbs.recv_cq = attr.recv_cq;
  verbs.handle = next_handle();
  verbs.qp_num = qpn;
  verbs.state = IBV_QPS_RESET;
  verbs.qp_type = attr.qp_type;
  verbs.mutex = PTHREAD_MUTEX_INITIALIZER;
  verbs.cond = PTHREAD_COND_INITIALIZER;
}

// Null with errno set on failure. Writes the real capabilities back to `attr`.
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attr, uint64_t send_ops) {
  if (const int error = check_init_attributes(attr)) return fail(error);
  Context& context = from(pd->context);
  std::unique_ptr<Qp> qp;
  const int error = without_exceptions([&] {
    qp = std::make_unique<Qp>();
    qp->engine = context.engine.get();
    // Complete before the engine has it: an event may name it at once.
    fill_verbs_qp(pd, attr, 0, qp->verbs.qp_base);
    context.qps.add(qp.get());
    return qp->engine->create_qp(engine_init(pd, attr, *qp), qp->engine_qp);
  });
  if (error != 0) {
    context.qps.remove(qp.get());
    return fail(error);
  }

  qp->verbs.qp_base.qp_num = Engine::qpn(*qp->engine_qp);
  qp->send_queue = &Engine::send_queue(*qp->engine_qp);
  qp->receive_queue = &Engine::receive_queue(*qp->engine_qp);
  qp->signal_all = attr.sq_sig_all != 0;
  qp->send_ops = send_ops;
  if (send_ops != 0) fill_work_request_functions(qp->verbs, send_ops);
  attr.cap = real_capabilities(*qp);
  ++from(pd).users;
  ++from(attr.send_cq).users;
  ++from(attr.recv_cq).users;
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

ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr->comp_mask & ~kKnown) return fail(EOPNOTSUPP);
  if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || attr->pd == nullptr) return fail(EINVAL);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags != 0) return fail(EOPNOTSUPP);
  const uint64_t send_ops = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ? attr->send_ops_flags : 0;
  if (send_ops & ~kSupportedSendOps) return fail(EOPNOTSUPP);
  // The extended struct begins with the plain one.
  return create_qp(attr->pd, *reinterpret_cast<ibv_qp_init_attr*>(attr), send_ops);
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return create_qp(pd, *attr, 0);
}

int ibv_modify_qp(ibv_qp* verbs, ibv_qp_attr* attr, int attr_mask) {
  const auto mask = static_cast<uint32_t>(attr_mask);
  QpAttributes attributes;
  if (const int error = attributes_from_verbs(*attr, mask, attributes)) return error;
  Qp& qp = from(verbs);
  if (const int error = without_exceptions([&] { return modify_engine_qp(qp, attributes, mask); })) return error;
  if (mask & IBV_QP_STATE) verbs->state = attr->qp_state;
  return 0;
}

int ibv_query_qp(ibv_qp* verbs, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  Qp& qp = from(verbs);
  *attr = attributes_to_verbs(qp.engine->query_qp(*qp.engine_qp));
  attr->cap = real_capabilities(qp);
  *init_attr = {verbs->qp_context, verbs->send_cq, verbs->recv_cq,       verbs->srq,
                attr->cap,         verbs->qp_type, qp.signal_all ? 1 : 0};
  verbs->state = attr->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* verbs) {
  Qp& qp = from(verbs);
  if (from(verbs->context).qps.remove(&qp)) qp.engine->destroy_qp(qp.engine_qp);  // else the device has been closed
  drain_events(qp);
  --from(verbs->send_cq).users;
  --from(verbs->recv_cq).users;
  --from(verbs->pd).users;
  delete &qp;
  return 0;
}

// What order payload is placed in is the engine's affair.
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) {
  return 0;
}

}  // extern "C"

// SPDX-License-Identifier: BSD-2-Clause
// Shared receive queues: plain ones, and those of XRC domains.

#include <cerrno>
#include <memory>
#include <mutex>

#include "abi/verbs/async_events.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

using engine::Engine;
using engine::Limits;

struct SrqRequest {
  ibv_pd* pd = nullptr;
  void* context = nullptr;
  ibv_xrcd* xrcd = nullptr;  // null: not for XRC
  ibv_cq* cq = nullptr;
};

int check_attributes(const ibv_srq_attr& attr) {
  const bool fits = attr.max_wr != 0 && attr.max_wr <= Limits::kMaxWr && attr.max_sge <= Limits::kMaxSge;
  return fits ? 0 : EINVAL;
}

// Null with errno set on failure. Writes the real capabilities back to `attr`.
ibv_srq* create_srq(const SrqRequest& request, ibv_srq_attr& attr) {
  if (refuses_orphan(request.pd->context)) return fail(EIO);
  if (const int error = check_attributes(attr)) return fail(error);
  if (!take_quota(request.pd->context, engine::ObjectKind::kSrq)) return fail(ENOMEM);
  Context& context = from(request.pd->context);
  std::unique_ptr<Srq> srq;
  const int error = without_exceptions([&] {
    srq = std::make_unique<Srq>(from(request.pd).shared_by_threads());
    srq->context = request.pd->context;
    srq->srq_context = request.context;
    srq->pd = request.pd;
    srq->handle = next_handle();
    srq->mutex = PTHREAD_MUTEX_INITIALIZER;
    srq->cond = PTHREAD_COND_INITIALIZER;
    srq->engine = context.engine.get();
    srq->cq = request.cq;
    if (request.xrcd != nullptr) srq->domain = from(request.xrcd).domain;
    const int failure =
        srq->memory.allocate(from(request.pd).allocator, queue::ReceiveQueue::bytes(attr.max_wr, attr.max_sge),
                             queue::SendQueue::kAlignment, QueueKind::kSharedReceive);
    if (failure != 0) return failure;
    engine::SrqInit init;
    init.pd = request.pd->handle;
    init.xrcd = srq->domain ? srq->domain->number : 0;
    init.max_wr = attr.max_wr;
    init.max_sge = attr.max_sge;
    init.memory = srq->memory.data();
    init.cq = request.cq == nullptr ? nullptr : &from(request.cq);
    init.events = &context.on_event;
    init.context = srq.get();
    context.srqs.add(srq.get());
    return srq->engine->create_srq(init, srq->engine_srq);
  });
  if (error != 0) {
    context.srqs.remove(srq.get());
    give_quota(request.pd->context, engine::ObjectKind::kSrq);
    return fail(error);
  }
  srq->receive_queue = &Engine::receive_queue(*srq->engine_srq);
  attr.max_wr = srq->receive_queue->depth();
  attr.max_sge = srq->receive_queue->max_sge();
  ++from(request.pd).users;
  if (srq->cq != nullptr) ++from(srq->cq).users;
  if (srq->domain) ++srq->domain->users;
  return srq.release();
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t kKnown =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if (attr->comp_mask & ~kKnown) return fail(EOPNOTSUPP);
  if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || attr->pd == nullptr) return fail(EINVAL);
  const uint32_t type =
      (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) ? number_in(attr->srq_type) : uint32_t{IBV_SRQT_BASIC};
  if (type == IBV_SRQT_BASIC) return create_srq({attr->pd, attr->srq_context}, attr->attr);
  if (type != IBV_SRQT_XRC) return fail(EOPNOTSUPP);  // tag matching
  constexpr uint32_t kNeeded = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  const bool complete = (attr->comp_mask & kNeeded) == kNeeded && attr->xrcd != nullptr && attr->cq != nullptr;
  if (!complete) return fail(EINVAL);
  return create_srq({attr->pd, attr->srq_context, attr->xrcd, attr->cq}, attr->attr);
}

int get_srq_num(ibv_srq* verbs, uint32_t* number) {
  const Srq& srq = from(verbs);
  if (!srq.domain) return answer(EOPNOTSUPP);
  *number = Engine::number(*srq.engine_srq);
  return 0;
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return create_srq({pd, attr->srq_context}, attr->attr);
}

// IBV_SRQ_LIMIT arms one event; IBV_SRQ_MAX_WR resizes.
int ibv_modify_srq(ibv_srq* verbs, ibv_srq_attr* attr, int attr_mask) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  constexpr int kKnown = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
  if (attr_mask & ~kKnown) return answer(EINVAL);
  Srq& srq = from(verbs);
  std::lock_guard guard(srq.receive_lock);
  const uint32_t depth = (attr_mask & IBV_SRQ_MAX_WR) ? attr->max_wr : srq.receive_queue->depth();
  if (depth == 0 || depth > uroce::engine::Limits::kMaxSrqWr) return answer(EINVAL);
  if ((attr_mask & IBV_SRQ_LIMIT) && attr->srq_limit > depth) return answer(EINVAL);
  if (attr_mask & IBV_SRQ_MAX_WR) {
    const int error = without_exceptions([&] { return srq.engine->resize_srq(*srq.engine_srq, depth); });
    if (error != 0) return answer(error);
  }
  if (attr_mask & IBV_SRQ_LIMIT) srq.engine->arm_srq_limit(*srq.engine_srq, attr->srq_limit);
  return 0;
}

int ibv_query_srq(ibv_srq* verbs, ibv_srq_attr* attr) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  Srq& srq = from(verbs);
  std::lock_guard guard(srq.receive_lock);
  attr->max_wr = srq.receive_queue->depth();
  attr->max_sge = srq.receive_queue->max_sge();
  attr->srq_limit = srq.engine->srq_limit(*srq.engine_srq);
  return 0;
}

int ibv_destroy_srq(ibv_srq* verbs) {
  Srq& srq = from(verbs);
  if (orphaned(verbs->context)) return abandon(srq);
  if (srq.users != 0) return answer(EBUSY);
  if (from(verbs->context).srqs.remove(&srq)) srq.engine->destroy_srq(srq.engine_srq);  // else the device was closed
  drain_events(srq);
  srq.memory.release();
  if (srq.cq != nullptr) --from(srq.cq).users;
  if (srq.domain) --srq.domain->users;
  --from(verbs->pd).users;
  give_quota(verbs->context, uroce::engine::ObjectKind::kSrq);
  delete &srq;
  return 0;
}

}  // extern "C"

// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/async_events.h"

#include <cerrno>

#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

bool is_cq_event(ibv_event_type type) {
  return type == IBV_EVENT_CQ_ERR;
}

bool is_qp_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

bool is_srq_event(ibv_event_type type) {
  return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

ibv_cq* as_cq(Cq& cq) {
  return ibv_cq_ex_to_cq(&cq);
}

template <class Object>
void report(Context& context, Object& object, ibv_event_type type) {
  if (AsyncSource* const source = object.async_events.find(type)) context.async_events.push(*source);
}

// Each of a QP's handles that belongs to the context hears of it.
void report_qp_event(Context& context, QpCore& core, ibv_event_type type) {
  std::lock_guard guard(core.mutex);
  for (Qp* qp : core.handles) {
    if (qp->verbs.qp_base.context == &context.verbs.context) report(context, *qp, type);
  }
}

}  // namespace

void queue_event(Context& context, const engine::EventSubject& subject) {
  const auto type = static_cast<ibv_event_type>(subject.event);
  if (is_qp_event(type)) return report_qp_event(context, *static_cast<QpCore*>(subject.qp_context), type);
  if (is_cq_event(type)) {
    Cq& cq = *static_cast<Cq*>(subject.cq);
    if (cq.context == &context.verbs.context) report(context, cq, type);
  } else if (is_srq_event(type)) {
    Srq& srq = *static_cast<Srq*>(subject.srq_context);
    if (srq.context == &context.verbs.context) report(context, srq, type);
  } else if (AsyncSource* const source = context.own_events.find(type)) {
    context.async_events.push(*source);
  }
}

void drain_events(Cq& cq) {
  cq.async_events.leave(from(cq.context).async_events);
  wait_for_acknowledgements(cq.mutex, cq.cond, as_cq(cq)->async_events_completed, cq.async_events_taken);
}

void drain_events(Qp& qp) {
  ibv_qp& verbs = qp.verbs.qp_base;
  qp.async_events.leave(from(verbs.context).async_events);
  wait_for_acknowledgements(verbs.mutex, verbs.cond, verbs.events_completed, qp.async_events_taken);
}

void drain_events(Srq& srq) {
  srq.async_events.leave(from(srq.context).async_events);
  wait_for_acknowledgements(srq.mutex, srq.cond, srq.events_completed, srq.async_events_taken);
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (refuses_orphan(context)) return fail_minus_one(EIO);
  const auto hand_out = [event](const EventSource& source) {
    *event = static_cast<const AsyncSource&>(source).event;
    if (is_cq_event(event->event_type)) ++from(event->element.cq).async_events_taken;
    if (is_qp_event(event->event_type)) ++from(event->element.qp).async_events_taken;
    if (is_srq_event(event->event_type)) ++from(event->element.srq).async_events_taken;
  };
  return from(context).async_events.take(context->async_fd, hand_out) ? 0 : -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (is_cq_event(event->event_type)) {
    ibv_cq* cq = event->element.cq;
    if (orphaned(cq->context)) return;
    acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
  } else if (is_qp_event(event->event_type)) {
    ibv_qp* qp = event->element.qp;
    if (orphaned(qp->context)) return;
    acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
  } else if (is_srq_event(event->event_type)) {
    ibv_srq* srq = event->element.srq;
    if (orphaned(srq->context)) return;
    acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
  }
}

}  // extern "C"

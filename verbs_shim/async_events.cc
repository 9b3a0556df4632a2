#include "verbs_shim/async_events.h"

#include <cerrno>

#include "verbs_shim/orphan.h"

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

// Each of a QP's handles that belongs to the context hears of it.
void queue_qp_event(Context& context, ibv_async_event event, QpCore& core) {
  std::lock_guard guard(core.mutex);
  for (Qp* qp : core.handles) {
    if (qp->verbs.qp_base.context != &context.verbs.context) continue;
    event.element.qp = &qp->verbs.qp_base;
    context.async_events.push(event);
  }
}

}  // namespace

void queue_event(Context& context, const engine::EventSubject& subject) {
  ibv_context* verbs = &context.verbs.context;
  ibv_async_event event{};
  event.event_type = static_cast<ibv_event_type>(subject.event);
  if (is_qp_event(event.event_type)) return queue_qp_event(context, event, *static_cast<QpCore*>(subject.qp_context));
  if (is_cq_event(event.event_type)) {
    event.element.cq = as_cq(*static_cast<Cq*>(subject.cq));
    if (event.element.cq->context != verbs) return;
  } else if (is_srq_event(event.event_type)) {
    event.element.srq = static_cast<Srq*>(subject.srq_context);
    if (event.element.srq->context != verbs) return;
  } else if (event.event_type != IBV_EVENT_DEVICE_FATAL) {
    event.element.port_num = 1;
  }
  context.async_events.push(event);
}

void drain_events(Cq& cq) {
  from(cq.context).async_events.purge([&](const ibv_async_event& event) {
    return is_cq_event(event.event_type) && event.element.cq == as_cq(cq);
  });
  wait_for_acknowledgements(cq.mutex, cq.cond, as_cq(cq)->async_events_completed, cq.async_events_taken);
}

void drain_events(Qp& qp) {
  ibv_qp& verbs = qp.verbs.qp_base;
  from(verbs.context).async_events.purge([&](const ibv_async_event& event) {
    return is_qp_event(event.event_type) && event.element.qp == &verbs;
  });
  wait_for_acknowledgements(verbs.mutex, verbs.cond, verbs.events_completed, qp.async_events_taken);
}

void drain_events(Srq& srq) {
  from(srq.context).async_events.purge([&](const ibv_async_event& event) {
    return is_srq_event(event.event_type) && event.element.srq == &srq;
  });
  wait_for_acknowledgements(srq.mutex, srq.cond, srq.events_completed, srq.async_events_taken);
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (orphaned(context)) return fail_minus_one(EIO);
  const auto count_taken = [](const ibv_async_event& taken) {
    if (is_cq_event(taken.event_type)) ++from(taken.element.cq).async_events_taken;
    if (is_qp_event(taken.event_type)) ++from(taken.element.qp).async_events_taken;
    if (is_srq_event(taken.event_type)) ++from(taken.element.srq).async_events_taken;
  };
  return from(context).async_events.take(context->async_fd, *event, count_taken) ? 0 : -1;
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

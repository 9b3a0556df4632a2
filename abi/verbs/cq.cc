// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: creation, polling, arming, resizing, moderation.

#include "abi/verbs/cq.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "abi/verbs/async_events.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

void store(const queue::Cqe& cqe, ibv_wc& wc) {
  wc.wr_id = cqe.wr_id;
  wc.status = static_cast<ibv_wc_status>(cqe.status);
  wc.opcode = static_cast<ibv_wc_opcode>(cqe.opcode);
  wc.vendor_err = cqe.vendor_error;
  wc.byte_len = cqe.byte_length;
  wc.imm_data = cqe.immediate_or_rkey;
  wc.qp_num = cqe.qpn;
  wc.src_qp = cqe.source_qpn;
  wc.wc_flags = cqe.flags;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = static_cast<uint8_t>(cqe.network_type);
  wc.dlid_path_bits = 0;
}

uint32_t take(Cq& cq, uint32_t limit, ibv_wc* wc) {
  note_answer(cq, limit);
  return cq.poll(limit, [&wc](const queue::Cqe& cqe) { store(cqe, *wc++); });
}

}  // namespace

Cq* create_cq(ibv_context* context, const CqRequest& request) {
  if (refuses_orphan(context) || (request.channel != nullptr && refuses_orphan(request.channel->context)))
    return fail(EIO);
  if (request.entries == 0 || request.entries > engine::Limits::kMaxCqe) return fail(EINVAL);
  if (request.vector >= static_cast<uint32_t>(context->num_comp_vectors)) return fail(EINVAL);
  if (!take_quota(context, engine::ObjectKind::kCq)) return fail(ENOMEM);
  std::unique_ptr<Cq> cq;
  const int error = without_exceptions([&] {
    QueueMemory memory;
    if (request.parent_domain != nullptr) {
      const int failure = memory.allocate(request.parent_domain->allocator, Cq::bytes(request.entries),
                                          queue::CompletionQueue::kAlignment, QueueKind::kCompletion);
      if (failure != 0) return failure;
    }
    cq = std::make_unique<Cq>(request.entries, request.channel, request.overrun, request.consumers, std::move(memory));
    if (request.channel != nullptr) {
      from(request.channel).add(*cq);
      ++from(request.channel).users;
    }
    return 0;
  });
  if (error != 0) {
    give_quota(context, engine::ObjectKind::kCq);
    return fail(error);
  }

  cq->context = context;
  cq->channel = request.channel;
  cq->cq_context = request.context;
  cq->handle = next_handle();
  cq->cqe = static_cast<int>(cq->capacity());
  cq->mutex = PTHREAD_MUTEX_INITIALIZER;
  cq->cond = PTHREAD_COND_INITIALIZER;
  cq->engine = from(context).engine.get();
  cq->parent_domain = request.parent_domain;
  if (cq->parent_domain != nullptr) ++cq->parent_domain->users;
  ++from(context).users;
  return cq.release();
}

int poll_cq(ibv_cq* verbs, int num_entries, ibv_wc* wc) {
  Cq& cq = from(verbs);
  if (refuses_orphan(cq.context)) return 0;
  const auto limit = static_cast<uint32_t>(std::max(num_entries, 0));
  uint32_t count = take(cq, limit, wc);
  if (count == 0) progress(cq, [&] { return (count = take(cq, limit, wc)) != 0; });
  return static_cast<int>(count);
}

int req_notify_cq(ibv_cq* verbs, int solicited_only) {
  Cq& cq = from(verbs);
  if (refuses_orphan(cq.context)) return answer(EIO);
  cq.arm(solicited_only ? queue::CompletionQueue::Arm::kSolicited : queue::CompletionQueue::Arm::kAny);
  if (cq.has_missed()) cq.engine->report_missed(cq);
  cq.empty_polls.store(0, std::memory_order_relaxed);
  if (cq.channel == nullptr || !from(cq.channel).leave(*cq.engine)) cq.engine->expect_sleep();
  return 0;
}

// An event comes when cq_count completions are there, or cq_period microseconds after the first; 0 of either: at once.
int modify_cq(ibv_cq* verbs, ibv_modify_cq_attr* attr) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  if (attr->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE}) return answer(EINVAL);
  if (!(attr->attr_mask & IBV_CQ_ATTR_MODERATE)) return 0;
  Cq& cq = from(verbs);
  const auto [count, period] = attr->moderate;
  return without_exceptions([&, count = count, period = period] {
    from(cq.context).moderated_cqs.add(&cq);
    return cq.engine->moderate_cq(cq, count, std::chrono::microseconds(period));
  });
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) {
  if (cqe < 0 || comp_vector < 0) return fail(EINVAL);
  Cq* cq = create_cq(context, {static_cast<uint32_t>(cqe), cq_context, channel, static_cast<uint32_t>(comp_vector)});
  return cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq);
}

int ibv_destroy_cq(ibv_cq* verbs) {
  Cq& cq = from(verbs);
  if (orphaned(cq.context)) {
    cq.memory.abandon();
    return forget(cq);
  }
  if (cq.users != 0) return answer(EBUSY);
  if (from(cq.context).moderated_cqs.remove(&cq)) cq.engine->moderate_cq(cq, 0, {});  // else closed, or never was
  if (cq.channel != nullptr) {
    from(cq.channel).remove(cq);
    from(cq.channel).events.purge(cq);
    wait_for_acknowledgements(cq.mutex, cq.cond, verbs->comp_events_completed, cq.completion_events_taken);
    from(cq.channel).forget_taken(cq);  // until then a thread may have been in ibv_get_cq_event
    --from(cq.channel).users;
  }
  drain_events(cq);
  if (cq.parent_domain != nullptr) --cq.parent_domain->users;
  give_quota(cq.context, uroce::engine::ObjectKind::kCq);
  drop_user(from(cq.context));
  delete &cq;
  return 0;
}

int ibv_resize_cq(ibv_cq* verbs, int cqe) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  if (cqe <= 0 || static_cast<uint32_t>(cqe) > uroce::engine::Limits::kMaxCqe) return answer(EINVAL);
  Cq& cq = from(verbs);
  const int error = without_exceptions([&] { return cq.engine->resize_cq(cq, static_cast<uint32_t>(cqe)); });
  if (error == 0) verbs->cqe = static_cast<int>(cq.capacity());
  return answer(error);
}

}  // extern "C"

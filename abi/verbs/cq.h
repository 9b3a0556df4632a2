// SPDX-License-Identifier: BSD-2-Clause
// What ibv_create_cq and ibv_create_cq_ex share.
#pragma once

#include "abi/verbs/objects.h"

namespace uroce::verbs {

struct CqRequest {
  uint32_t entries = 0;
  void* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  uint32_t vector = 0;
  queue::CompletionQueue::Overrun overrun = queue::CompletionQueue::Overrun::kFail;
  queue::CompletionQueue::Consumers consumers = queue::CompletionQueue::Consumers::kMany;
  Pd* parent_domain = nullptr;
};

// Before the program takes up to `limit` completions: an answer that it has waited for may be among them.
inline void note_answer(Cq& cq, uint32_t limit) {
  if (cq.channel == nullptr || cq.empty()) return;
  const engine::PollSet& set = *from(cq.channel).set;
  if (set.requested_at() != Time{} && cq.holds_answer(limit)) cq.engine->note_answer(set);
}
// After it has taken an event of the queue. Where the queue has one consumer, that may be another thread: then the
// event counts as the answer.
inline void note_event_taken(Cq& cq) {
  constexpr uint32_t kMost = 16;
  const engine::PollSet& set = *from(cq.channel).set;
  if (set.requested_at() == Time{}) return;
  if (cq.has_one_consumer() || cq.holds_answer(kMost)) cq.engine->note_answer(set);
}

// A program that has armed the queue and finds it empty is about to wait, unless it goes on like that.
inline bool may_wait_next(Cq& cq) {
  constexpr uint32_t kPolls = 16;
  if (cq.channel == nullptr || !cq.armed() || cq.empty_polls.load(std::memory_order_relaxed) >= kPolls) return false;
  cq.empty_polls.fetch_add(1, std::memory_order_relaxed);
  return from(cq.channel).attends(*cq.engine) && !Channel::comes_back();
}

// The queue is empty. take() says whether there is something now.
template <class Take>
void progress(Cq& cq, Take&& take) {
  if (!may_wait_next(cq)) {
    cq.engine->progress(cq);
    take();
  } else {
    bool taken = false;
    // Not more than std::function holds without an allocation.
    const engine::LookForEvent look = [&taken, &take](const std::function<void()>& rounds) {
      rounds();
      return taken = take();
    };
    if (!cq.engine->serve_stream(look, false) && !cq.engine->linger(look, false)) {
      cq.engine->leave(from(cq.channel).set, false);
    }
  }
}

// Null with errno set on failure.
Cq* create_cq(ibv_context* context, const CqRequest& request);

}  // namespace uroce::verbs

// SPDX-License-Identifier: BSD-2-Clause
// The completion queues whose notifications are moderated and the deadlines that brings. A round looks at one time
// only; at the queues, when it has come. Owned by Datapath; under the progress lock.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/queue/completion_queue.h"

namespace uroce::engine {

class ModeratedCqs {
 public:
  // As CompletionQueue::moderate(). Throws std::bad_alloc, and nothing has changed.
  void moderate(queue::CompletionQueue& cq, uint16_t count, Duration period) {
    cqs_.reserve(cqs_.size() + 1);
    std::erase(cqs_, &cq);
    cq.moderate(count, period, &soonest_);
    if (cq.moderated()) cqs_.push_back(&cq);
  }

  // Not later than the first deadline; kNever if there is none.
  Time next_deadline() const { return soonest_; }

  void expire(Time now) {
    if (now < soonest_) return;
    soonest_ = kNever;
    for (queue::CompletionQueue* cq : cqs_) {
      cq->expire(now);
      soonest_ = std::min(soonest_, cq->deadline());
    }
  }

 private:
  std::vector<queue::CompletionQueue*> cqs_;
  Time soonest_ = kNever;  // the queues write to it when they get a deadline
};

}  // namespace uroce::engine

// The completion queues whose notifications are moderated and the deadlines that brings. Few queues are, if any, so a
// plain list does. Owned by Datapath; under the progress lock.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/queue/completion_queue.h"

namespace uroce::engine {

class ModeratedCqs {
 public:
  // The queue's moderation has been set or switched off. Throws std::bad_alloc.
  void set(queue::CompletionQueue& cq) {
    std::erase(cqs_, &cq);
    if (cq.moderated()) cqs_.push_back(&cq);
  }

  Time next_deadline() const {
    Time next = kNever;
    for (const queue::CompletionQueue* cq : cqs_) next = std::min(next, cq->deadline());
    return next;
  }

  void expire(Time now) {
    for (queue::CompletionQueue* cq : cqs_) cq->expire(now);
  }

 private:
  std::vector<queue::CompletionQueue*> cqs_;
};

}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// The completion queues that have got completions in a round and not published them: each is published once, however
// many there are. An armed queue is published at once, because somebody sleeps until it is, and so is one that other
// shards fill too. Under the shard's lock, which nobody lets go before all is published.
#pragma once

#include <utility>

#include "engine/queue/completion_queue.h"

namespace uroce::queue {

class CompletionBurst {
 public:
  // As CompletionQueue::append(). `last` becomes its mark().
  bool append(CompletionQueue& cq, const Cqe& cqe, CompletionQueue::Mark& last) {
    if (cq.shared()) return cq.push_shared(cqe, last);
    const bool appended = cq.append(cqe);
    last = cq.mark();
    if (cq.armed()) {
      cq.publish();
    } else if (!cq.in_burst_) {
      cq.in_burst_ = true;
      cq.next_in_burst_ = std::exchange(first_, &cq);
    }
    return appended;
  }

  void publish() {
    while (first_ != nullptr) {
      CompletionQueue& cq = *std::exchange(first_, first_->next_in_burst_);
      cq.in_burst_ = false;
      cq.publish();
    }
  }

  // Publishes when it ends.
  class Publisher {
   public:
    explicit Publisher(CompletionBurst& burst) : burst_(burst) {}
    ~Publisher() { burst_.publish(); }
    Publisher(const Publisher&) = delete;
    Publisher& operator=(const Publisher&) = delete;

   private:
    CompletionBurst& burst_;
  };

 private:
  CompletionQueue* first_ = nullptr;
};

}  // namespace uroce::queue

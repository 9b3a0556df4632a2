// SPDX-License-Identifier: BSD-2-Clause
// The account of one work queue: what was posted, and what its completions say (IBTA 10.3.1, 10.8.3, C10-100..).
// Everything completes once and in order; after the first error everything else is flushed.
#pragma once

#include <cstdint>
#include <deque>

#include "engine/queue/completion_queue.h"
#include "tests/fuzz/check.h"

namespace uroce::fuzz {

class Ledger {
 public:
  // The number to post the next request under, once it is known that it can be posted. `room`: bytes in its SGEs.
  uint64_t posted(bool signaled, uint64_t room) {
    open_.push_back({++last_id_, room, signaled});
    return last_id_;
  }

  // `overrun`: the completion queue has lost completions.
  void completed(const queue::Cqe& cqe, bool overrun) {
    const bool success = cqe.status == queue::WcStatus::kSuccess;
    while (!open_.empty() && open_.front().id != cqe.wr_id) {
      // Those that did not ask for a completion succeeded before this one.
      check(overrun || (!open_.front().signaled && !failed_), "every completion comes, and in the order of posting");
      open_.pop_front();
    }
    check(!open_.empty(), "nothing completes that was not posted, or twice");
    check(!success || !failed_, "nothing succeeds after an error");
    check(!success || open_.front().signaled, "no completion of a success that did not ask for one");
    check(!success || cqe.byte_length <= open_.front().room || cqe.opcode == queue::WcOpcode::kReceiveRdmaWithImmediate,
          "no more bytes than there was room for");
    check(!failed_ || overrun || cqe.status == queue::WcStatus::kFlushError, "after an error everything is flushed");
    failed_ = failed_ || !success;
    open_.pop_front();
  }

  // The QP was reset: what was posted is gone.
  void reset() {
    open_.clear();
    failed_ = false;
  }

  bool settled() const { return open_.empty(); }

 private:
  struct Request {
    uint64_t id;
    uint64_t room;
    bool signaled;
  };
  std::deque<Request> open_;
  uint64_t last_id_ = 0;
  bool failed_ = false;
};

}  // namespace uroce::fuzz

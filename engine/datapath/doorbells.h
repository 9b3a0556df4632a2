// SPDX-License-Identifier: BSD-2-Clause
// The doorbells of a datapath: posting threads push their QPs to a stack without a lock, and the holder of the progress
// lock answers them in the order in which they rang. Owned by Datapath.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "engine/objects/qp.h"

namespace uroce::engine {

class Doorbells {
 public:
  // --- any thread -------------------------------------------------------------------------------------------------
  // The QP has new work.
  void ring(Qp& qp) {
    if (qp.rung.exchange(true, std::memory_order_seq_cst)) return;
    Qp* head = stack_.load(std::memory_order_relaxed);
    do {
      qp.next_rung = head;
    } while (!stack_.compare_exchange_weak(head, &qp, std::memory_order_seq_cst));
  }
  // Some that nobody has taken from the stack ring.
  bool rung() const { return stack_.load(std::memory_order_seq_cst) != nullptr; }

  // --- under the progress lock --------------------------------------------------------------------------------------
  // Calls `answer(qp)` for `limit` QPs at most that have rung; the others keep their turn.
  template <class Answer>
  void answer(size_t limit, Answer&& answer) {
    if (stack_.load(std::memory_order_relaxed) != nullptr) take_stack();
    for (; first_ != nullptr && limit > 0; --limit) {
      Qp& qp = *std::exchange(first_, first_->next_rung);
      if (first_ != nullptr) first_->prefetch();
      // Not a mere store: it takes over what the poster published who found the bell rung.
      qp.rung.exchange(false, std::memory_order_seq_cst);
      answer(qp);
    }
  }
  // Some of those taken from the stack have not been answered.
  bool left_over() const { return first_ != nullptr; }

 private:
  // The latest is on top of the stack; it comes to the end of the list.
  void take_stack() {
    Qp* const latest = stack_.exchange(nullptr, std::memory_order_seq_cst);
    Qp* first = nullptr;
    for (Qp* qp = latest; qp != nullptr;) {
      Qp* const next = qp->next_rung;
      qp->next_rung = first;
      first = std::exchange(qp, next);
    }
    (first_ == nullptr ? first_ : last_->next_rung) = first;
    last_ = latest;
  }

  alignas(64) std::atomic<Qp*> stack_{nullptr};  // written by posting threads; a cache line of its own
  alignas(64) Qp* first_ = nullptr;              // taken from there and not answered yet
  Qp* last_ = nullptr;
};

}  // namespace uroce::engine

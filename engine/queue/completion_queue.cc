#include "engine/queue/completion_queue.h"

#include <bit>

namespace uroce::queue {

CompletionQueue::CompletionQueue(uint32_t capacity, CompletionNotifier* notifier)
    : mask_(std::bit_ceil(capacity < 2 ? 2u : capacity) - 1), ring_(new Cqe[mask_ + 1]), notifier_(notifier) {}

bool CompletionQueue::push(const Cqe& cqe) {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  if (head - tail_.load(std::memory_order_acquire) > mask_) {
    overrun_ = true;
    return false;
  }
  ring_[head & mask_] = cqe;
  // Sequentially consistent with arm(): either arm() comes first and we see it, or the application's poll after
  // arming sees the CQE.
  head_.store(head + 1, std::memory_order_seq_cst);
  if (armed_.load(std::memory_order_seq_cst) != 0) {
    notify_if_armed(cqe.solicited || cqe.status != WcStatus::kSuccess);
  }
  return true;
}

void CompletionQueue::notify_if_armed(bool solicited) {
  uint8_t armed = armed_.load(std::memory_order_seq_cst);
  while (armed == static_cast<uint8_t>(Arm::kAny) || (armed == static_cast<uint8_t>(Arm::kSolicited) && solicited)) {
    if (armed_.compare_exchange_weak(armed, 0, std::memory_order_seq_cst)) {
      if (notifier_ != nullptr) notifier_->on_completion(*this);
      return;
    }
  }
}

void CompletionQueue::arm(Arm arm) {
  const auto wanted = static_cast<uint8_t>(arm);
  uint8_t current = armed_.load(std::memory_order_relaxed);
  while (current < wanted && !armed_.compare_exchange_weak(current, wanted, std::memory_order_seq_cst)) {
  }
}

void CompletionQueue::purge(uint32_t qpn) {
  std::lock_guard guard(poll_lock_);
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  // Compact towards the head, so that the producer's position does not move.
  uint32_t write = head;
  for (uint32_t read = head; read != tail;) {
    --read;
    if (ring_[read & mask_].qpn != qpn) ring_[--write & mask_] = ring_[read & mask_];
  }
  tail_.store(write, std::memory_order_release);
}

}  // namespace uroce::queue

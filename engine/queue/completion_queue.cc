// SPDX-License-Identifier: BSD-2-Clause
#include "engine/queue/completion_queue.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>

namespace uroce::queue {

namespace {
uint32_t cqe_mask(uint32_t capacity) {
  return std::bit_ceil(capacity < 2 ? 2u : capacity) - 1;
}
}  // namespace

CompletionQueue::CompletionQueue(uint32_t capacity, CompletionNotifier* notifier, Overrun overrun, std::byte* memory,
                                 Consumers consumers)
    : mask_(cqe_mask(capacity)),
      ring_(memory == nullptr ? make_ring(capacity) : Ring(reinterpret_cast<Cqe*>(memory), FreeRing{false})),
      notifier_(notifier),
      on_overrun_(overrun),
      // A producer that overwrites the oldest is a consumer too.
      poll_lock_(consumers == Consumers::kMany || overrun == Overrun::kOverwrite) {
  if (memory != nullptr) std::uninitialized_value_construct_n(ring_.get(), size_t{mask_} + 1);
}

size_t CompletionQueue::bytes(uint32_t capacity) {
  return (size_t{cqe_mask(capacity)} + 1) * sizeof(Cqe);
}

bool CompletionQueue::append(const Cqe& cqe) {
  if (full() && !make_room()) return false;
  ring_[filled_++ & mask_] = cqe;
  return true;
}

void CompletionQueue::publish() {
  const uint32_t first = head_.load(std::memory_order_relaxed);
  if (first == filled_) return;
  // Sequentially consistent with arm(): either arm() comes first and we see it, or the application's poll after
  // arming sees the CQEs.
  head_.store(filled_, std::memory_order_seq_cst);
  const uint8_t armed = armed_.load(std::memory_order_seq_cst);
  if (armed == 0) return;
  // Of the first that is due, and of it alone: that others came with it, who arms the queue again finds (has_missed).
  for (uint32_t i = first; i != filled_; ++i) {
    const Cqe& cqe = ring_[i & mask_];
    if (matches(armed, cqe) && !(moderated() && !shared() && hold_back(cqe))) return notify(i + 1);
  }
}

bool CompletionQueue::push_shared(const Cqe& cqe, Mark& last) {
  std::lock_guard guard(fill_lock_);
  const bool appended = push(cqe);
  last = mark();
  return appended;
}

// The consumers' position is looked up only when the ring would be full without what they have taken since: their cache
// line stays with them.
bool CompletionQueue::full() {
  if (filled_ - seen_tail_ <= mask_) return false;
  seen_tail_ = tail_.load(std::memory_order_acquire);
  return filled_ - seen_tail_ > mask_;
}

bool CompletionQueue::make_room() {
  if (on_overrun_ == Overrun::kFail) {
    overrun_.store(true, std::memory_order_relaxed);
    return false;
  }
  publish();  // the oldest may be among them
  std::lock_guard guard(poll_lock_);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (filled_ - tail > mask_) tail_.store(tail + 1, std::memory_order_release);
  return true;
}

bool CompletionQueue::matches(uint8_t armed, const Cqe& cqe) const {
  return armed == static_cast<uint8_t>(Arm::kAny) ||
         (armed == static_cast<uint8_t>(Arm::kSolicited) && (cqe.solicited || cqe.status != WcStatus::kSuccess));
}

// Whether moderation lets this completion wait for others.
bool CompletionQueue::hold_back(const Cqe& cqe) {
  if (++held_back_ >= moderation_count_) return false;
  if (held_back_ > 1) return true;
  deadline_ = Time(Duration(static_cast<int64_t>(cqe.timestamp))) + moderation_period_;
  if (soonest_ != nullptr) *soonest_ = std::min(*soonest_, deadline_);
  return true;
}

// Of everything before `reported`. Only the producer disarms, so the queue is armed still, if perhaps for more than
// before.
void CompletionQueue::notify(uint32_t reported) {
  held_back_ = 0;
  deadline_ = kNever;
  reported_.store(reported, std::memory_order_relaxed);
  armed_.store(static_cast<uint8_t>(Arm::kNone), std::memory_order_seq_cst);
  if (notifier_ != nullptr) notifier_->on_completion(*this);
}

void CompletionQueue::moderate(uint16_t count, Duration period, Time* soonest) {
  soonest_ = soonest;
  moderation_count_ = period == Duration{} ? uint16_t{0} : count;
  moderation_period_ = period;
  if (held_back_ != 0)
    notify(head_.load(std::memory_order_relaxed));  // by the new rules it may be due; early is harmless
}

void CompletionQueue::expire(Time now) {
  const std::lock_guard guard(fill_lock_);
  if (deadline_ <= now) notify(head_.load(std::memory_order_relaxed));
}

void CompletionQueue::arm(Arm arm) {
  const auto wanted = static_cast<uint8_t>(arm);
  uint8_t current = armed_.load(std::memory_order_relaxed);
  while (current < wanted && !armed_.compare_exchange_weak(current, wanted, std::memory_order_seq_cst)) {
  }
}

// The later one of what has been polled and what has been reported. An old report may be so far behind that it looks
// as if it were ahead: then it is not within what is in the queue.
uint32_t CompletionQueue::missed_from() const {
  const uint32_t reported = reported_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  const uint32_t head = head_.load(std::memory_order_seq_cst);
  return reported - tail <= head - tail ? reported : tail;
}

// Consumers may go on meanwhile; nobody but us, the producer, overwrites what they have left behind. With
// Overrun::kOverwrite too.
void CompletionQueue::report_missed() {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  for (uint32_t i = missed_from(); i != head; ++i) {
    if (matches(armed_.load(std::memory_order_seq_cst), ring_[i & mask_])) return notify(head);
  }
}

void CompletionQueue::report_early() {
  const std::lock_guard guard(fill_lock_);
  if (armed()) notify(head_.load(std::memory_order_relaxed));
}

void CompletionQueue::purge(uint32_t qpn, const Mark& last) {
  publish();
  const uint32_t head = filled_;
  // What purge() has removed since then has let the last one move by so much at most.
  const uint64_t moved = std::min<uint64_t>(removed_ - last.removed, head - last.end);
  const uint32_t end = last.end + static_cast<uint32_t>(moved);
  const auto within = [&](uint32_t tail) { return end - tail - 1 < head - tail; };
  if (!within(tail_.load(std::memory_order_relaxed))) return;
  std::lock_guard guard(poll_lock_);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (!within(tail)) return;
  // Compact towards the head, so that the producer's position does not move.
  uint32_t write = end;
  for (uint32_t read = end; read != tail;) {
    --read;
    if (ring_[read & mask_].qpn == qpn) continue;
    if (--write != read) ring_[write & mask_] = ring_[read & mask_];
  }
  tail_.store(write, std::memory_order_release);
  removed_ += write - tail;
}

CompletionQueue::Ring CompletionQueue::make_ring(uint32_t capacity) {
  // Zeroes from the kernel: the pages of a deep queue cost nothing before they are used.
  static_assert(std::is_trivially_copyable_v<Cqe>);
  auto* ring = static_cast<Cqe*>(std::calloc(size_t{cqe_mask(capacity)} + 1, sizeof(Cqe)));
  if (ring == nullptr) throw std::bad_alloc();
  return Ring(ring);
}

bool CompletionQueue::resize(uint32_t capacity, Ring& ring) {
  const uint32_t mask = cqe_mask(capacity);
  publish();
  std::lock_guard guard(poll_lock_);
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (head - tail > capacity) return false;
  for (uint32_t i = tail; i != head; ++i) ring[i & mask] = ring_[i & mask_];
  ring_.swap(ring);
  mask_ = mask;
  return true;
}

}  // namespace uroce::queue

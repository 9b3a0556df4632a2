// SPDX-License-Identifier: BSD-2-Clause
#include "engine/queue/work_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace uroce::queue {

namespace {
uint32_t wqe_mask(uint32_t depth) {
  return std::bit_ceil(std::max(depth, 1u)) - 1;
}

// Of a send queue: its WQEs with room for their SGEs, or for their inline data in the same place.
uint32_t stride(uint32_t max_sge, uint32_t max_inline) {
  constexpr uint32_t kSge = sizeof(Sge);
  return sizeof(SendWqe) + kSge * std::max(std::clamp(max_sge, 1u, kMaxSge), (max_inline + kSge - 1) / kSge);
}
}  // namespace

SendQueue::SendQueue(uint32_t depth, uint32_t max_sge, uint32_t max_inline, std::byte* memory)
    : depth_(std::max(depth, 1u)),
      mask_(wqe_mask(depth)),
      max_sge_(std::clamp(max_sge, 1u, kMaxSge)),
      max_inline_(max_inline),
      stride_(stride(max_sge, max_inline)),
      slots_(lines(depth, stride_), memory),
      progress_(new SendProgress[size_t{mask_} + 1]{}) {}

size_t SendQueue::bytes(uint32_t depth, uint32_t max_sge, uint32_t max_inline) {
  return Slots<CacheLine>::bytes(lines(depth, stride(max_sge, max_inline)));
}

size_t SendQueue::lines(uint32_t depth, size_t stride) {
  return ((size_t{wqe_mask(depth)} + 1) * stride + sizeof(CacheLine) - 1) / sizeof(CacheLine);
}

// The engine's position is looked up only when the queue would be full without what it has released since: its cache
// line stays with the engine.
bool SendQueue::reserve(uint32_t ahead, Slot& out) {
  const uint32_t index = head_.load(std::memory_order_relaxed) + ahead;
  if (index - seen_tail_ >= depth_) {
    seen_tail_ = tail_.load(std::memory_order_acquire);
    if (index - seen_tail_ >= depth_) return false;
  }
  SendWqe& slot = wqe(index);
  out = {&slot, sges(slot), inline_data(slot)};
  return true;
}

void SendQueue::publish(uint32_t count) {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) check(wqe(head + i));
  head_.store(head + count, std::memory_order_release);
}

void SendQueue::check(SendWqe& wqe) const {
  if (wqe.flags & kInline) {
    wqe.sge_count = 0;
    wqe.length = std::min(wqe.length, max_inline_);
    return;
  }
  wqe.sge_count = static_cast<uint8_t>(std::min<uint32_t>(wqe.sge_count, max_sge_));
  uint64_t total = 0;
  for (const Sge& sge : std::span(sges(wqe), wqe.sge_count)) total += sge.length;
  wqe.length = static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX));
}

void SendQueue::reset() {
  fetched_ = head();
  tail_.store(fetched_, std::memory_order_release);
}

ReceiveQueue::ReceiveQueue(uint32_t depth, uint32_t max_sge, std::byte* memory)
    : depth_(std::max(depth, 1u)),
      mask_(wqe_mask(depth)),
      max_sge_(std::clamp(max_sge, 1u, kMaxSge)),
      wqes_(size_t{mask_} + 1, memory),
      sges_((size_t{mask_} + 1) * max_sge_, memory) {}

size_t ReceiveQueue::bytes(uint32_t depth, uint32_t max_sge) {
  const size_t slots = size_t{wqe_mask(depth)} + 1;
  return Slots<ReceiveWqe>::bytes(slots) + Slots<Sge>::bytes(slots * std::clamp(max_sge, 1u, kMaxSge));
}

Sge* ReceiveQueue::reserve(uint32_t ahead, uint64_t wr_id, size_t sge_count) {
  const uint32_t index = head_.load(std::memory_order_relaxed) + ahead;
  if (index - seen_tail_ >= depth_) seen_tail_ = tail_.load(std::memory_order_acquire);
  if (sge_count > max_sge_ || index - seen_tail_ >= depth_) return nullptr;
  const size_t s = index & mask_;
  wqes_[s] = {wr_id, static_cast<uint32_t>(sge_count), 0};
  return &sges_[s * max_sge_];
}

void ReceiveQueue::publish(uint32_t count) {
  // Ordered before the poster's look at the QP state (Engine::receive_doorbell).
  head_.store(head_.load(std::memory_order_relaxed) + count, std::memory_order_seq_cst);
}

bool ReceiveQueue::post(uint64_t wr_id, std::span<const Sge> sges) {
  Sge* const to = reserve(0, wr_id, sges.size());
  if (to == nullptr) return false;
  std::copy(sges.begin(), sges.end(), to);
  publish(1);
  return true;
}

bool ReceiveQueue::take(ReceiveWqe& wqe, std::span<Sge> sges) {
  if (empty()) return false;
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  const size_t s = tail & mask_;
  wqe = wqes_[s];
  wqe.sge_count = std::min({wqe.sge_count, max_sge_, static_cast<uint32_t>(sges.size())});
  uint64_t total = 0;
  for (uint32_t i = 0; i < wqe.sge_count; ++i) {
    sges[i] = sges_[s * max_sge_ + i];
    total += sges[i].length;
  }
  wqe.length = static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX));
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

bool ReceiveQueue::resize(uint32_t depth) {
  depth = std::max(depth, 1u);
  const uint32_t posted = available();
  if (posted > depth) return false;
  const uint32_t mask = wqe_mask(depth);
  Slots<ReceiveWqe> wqes(size_t{mask} + 1);
  Slots<Sge> sges((size_t{mask} + 1) * max_sge_);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  for (uint32_t index = tail; index != tail + posted; ++index) {
    const size_t from = index & mask_;
    const size_t to = index & mask;
    wqes[to] = wqes_[from];
    std::copy_n(&sges_[from * max_sge_], max_sge_, &sges[to * max_sge_]);
  }
  wqes_ = std::move(wqes);
  sges_ = std::move(sges);
  depth_ = depth;
  mask_ = mask;
  return true;
}

void ReceiveQueue::reset() {
  tail_.store(head_.load(std::memory_order_acquire), std::memory_order_release);
}

}  // namespace uroce::queue

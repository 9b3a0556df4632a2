#include "engine/queue/work_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace uroce::queue {

namespace {
uint32_t wqe_mask(uint32_t depth) {
  return std::bit_ceil(std::max(depth, 1u)) - 1;
}
}  // namespace

SendQueue::SendQueue(uint32_t depth, uint32_t max_sge, uint32_t max_inline, std::byte* memory)
    : depth_(std::max(depth, 1u)),
      mask_(wqe_mask(depth)),
      max_sge_(std::clamp(max_sge, 1u, kMaxSge)),
      max_inline_(max_inline),
      posted_(size_t{mask_} + 1, memory),
      posted_sges_((size_t{mask_} + 1) * max_sge_, memory),
      inline_((size_t{mask_} + 1) * std::max(max_inline, 1u), memory),
      wqes_(new SendWqe[mask_ + 1]{}),
      sges_(new Sge[size_t{mask_ + 1} * max_sge_]{}),
      progress_(new SendProgress[mask_ + 1]{}) {}

size_t SendQueue::bytes(uint32_t depth, uint32_t max_sge, uint32_t max_inline) {
  const size_t slots = size_t{wqe_mask(depth)} + 1;
  return Slots<SendWqe>::bytes(slots) + Slots<Sge>::bytes(slots * std::clamp(max_sge, 1u, kMaxSge)) +
         Slots<uint8_t>::bytes(slots * std::max(max_inline, 1u));
}

bool SendQueue::reserve(uint32_t ahead, Slot& out) {
  const uint32_t index = head_.load(std::memory_order_relaxed) + ahead;
  if (index - tail_.load(std::memory_order_acquire) >= depth_) return false;
  const size_t s = slot(index);
  out = {&posted_[s], &posted_sges_[s * max_sge_], &inline_[s * max_inline_]};
  return true;
}

void SendQueue::fetch() {
  const size_t s = slot(fetched_);
  SendWqe& wqe = wqes_[s];
  wqe = posted_[s];
  if (wqe.flags & kInline) {
    wqe.sge_count = 0;
    wqe.length = std::min(wqe.length, max_inline_);
  } else {
    wqe.sge_count = static_cast<uint8_t>(std::min<uint32_t>(wqe.sge_count, max_sge_));
    uint64_t total = 0;
    for (uint32_t i = 0; i < wqe.sge_count; ++i) {
      sges_[s * max_sge_ + i] = posted_sges_[s * max_sge_ + i];
      total += sges_[s * max_sge_ + i].length;
    }
    wqe.length = static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX));
  }
  progress_[s] = SendProgress{};
  ++fetched_;
}

SendQueue::Entry SendQueue::entry(uint32_t index) {
  const size_t s = slot(index);
  return {wqes_[s], {&sges_[s * max_sge_], wqes_[s].sge_count}, &inline_[s * max_inline_], progress_[s]};
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

bool ReceiveQueue::post(uint64_t wr_id, std::span<const Sge> sges) {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  if (sges.size() > max_sge_ || head - tail_.load(std::memory_order_acquire) >= depth_) return false;
  const size_t s = head & mask_;
  wqes_[s] = {wr_id, static_cast<uint32_t>(sges.size()), 0};
  std::copy(sges.begin(), sges.end(), &sges_[s * max_sge_]);
  // Ordered before the poster's look at the QP state (Engine::receive_doorbell).
  head_.store(head + 1, std::memory_order_seq_cst);
  return true;
}

bool ReceiveQueue::take(ReceiveWqe& wqe, Sge* sges) {
  if (empty()) return false;
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  const size_t s = tail & mask_;
  wqe = wqes_[s];
  wqe.sge_count = std::min(wqe.sge_count, max_sge_);
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

// SPDX-License-Identifier: BSD-2-Clause
// Where captured packets wait for the writer: a bounded ring of bytes, one producer, one consumer, no locks. A full
// ring refuses; nobody waits. The producer is whoever holds the engine's progress lock, which orders one after the
// other.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace uroce::io {

class CaptureRing {
 public:
  // `size`: bytes, rounded up to a power of two. Memory that is never used is never touched.
  explicit CaptureRing(size_t size) : size_(std::bit_ceil(std::max<size_t>(size, 4096))), bytes_(new uint8_t[size_]) {}

  size_t size() const { return size_; }

  // --- producer -----------------------------------------------------------------------------------------------------
  // Room for an entry of `size` bytes in one piece, aligned to 8; null: none. Nothing is in the ring before commit().
  uint8_t* reserve(size_t size) {
    const size_t needed = entry_size(size);
    if (needed > size_ / 2) return nullptr;
    const size_t to_end = size_ - (head_ & (size_ - 1));
    const size_t skipped = needed > to_end ? to_end : 0;
    if (!has_room(skipped + needed)) return nullptr;
    if (skipped > 0) store_size(head_, kSkip);
    reserved_ = head_ + skipped;
    store_size(reserved_, static_cast<uint32_t>(size));
    return at(reserved_) + kHead;
  }
  void commit() {
    uint32_t size;
    std::memcpy(&size, at(reserved_), sizeof(size));
    head_ = reserved_ + entry_size(size);
    shared_head_.store(head_, std::memory_order_release);
  }

  // --- consumer -----------------------------------------------------------------------------------------------------
  // The oldest entry; empty: none. Valid until pop(). May be changed in place.
  std::span<uint8_t> front() {
    const uint64_t head = shared_head_.load(std::memory_order_acquire);
    if (tail_ == head) return {};
    uint32_t size;
    std::memcpy(&size, at(tail_), sizeof(size));
    if (size == kSkip) {
      tail_ += size_ - (tail_ & (size_ - 1));
      std::memcpy(&size, at(tail_), sizeof(size));
    }
    return {at(tail_) + kHead, size};
  }
  void pop() {
    tail_ += entry_size(front().size());
    shared_tail_.store(tail_, std::memory_order_release);
  }

  // --- anybody ------------------------------------------------------------------------------------------------------
  size_t used() const {
    const uint64_t tail = shared_tail_.load(std::memory_order_acquire);
    return static_cast<size_t>(shared_head_.load(std::memory_order_acquire) - tail);
  }

 private:
  static constexpr size_t kHead = 8;  // the entry's size, padded
  static constexpr uint32_t kSkip = 0xffffffff;

  static size_t entry_size(size_t size) { return (kHead + size + 7) & ~size_t{7}; }
  uint8_t* at(uint64_t position) { return bytes_.get() + (position & (size_ - 1)); }
  void store_size(uint64_t position, uint32_t size) { std::memcpy(at(position), &size, sizeof(size)); }
  bool has_room(size_t bytes) {
    if (head_ + bytes - known_tail_ <= size_) return true;
    known_tail_ = shared_tail_.load(std::memory_order_acquire);
    return head_ + bytes - known_tail_ <= size_;
  }

  const size_t size_;
  const std::unique_ptr<uint8_t[]> bytes_;
  // Producer's.
  alignas(64) uint64_t head_ = 0;
  uint64_t reserved_ = 0;
  uint64_t known_tail_ = 0;  // as the producer saw it last
  std::atomic<uint64_t> shared_head_{0};
  // Consumer's.
  alignas(64) uint64_t tail_ = 0;
  std::atomic<uint64_t> shared_tail_{0};
};

}  // namespace uroce::io

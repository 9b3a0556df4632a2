// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/ring.h"

#include <bit>
#include <utility>

namespace uroce::io {
namespace {

static_assert(std::has_single_bit(kRingSize) && std::atomic<uint64_t>::is_always_lock_free);

// In front of a record; records begin at multiples of kAlignment.
using Length = uint32_t;
constexpr size_t kAlignment = 16;

constexpr size_t taken_up(size_t size) {
  return (sizeof(Length) + size + kAlignment - 1) & ~(kAlignment - 1);
}

constexpr size_t place(uint64_t index) {
  return index & (kRingSize - 1);
}

}  // namespace

// `limit_` is never more than a ring away from what this side has written, whatever the reader says.
uint8_t* RingWriter::reserve(size_t size) {
  if (tail_ + taken_up(size) > limit_) {
    const uint64_t unread = tail_ - theirs_.head.load(std::memory_order_acquire);
    limit_ = tail_ + (unread > kRingSize ? 0 : kRingSize - unread);
    if (tail_ + taken_up(size) > limit_) return nullptr;
  }
  return bytes_ + place(tail_) + sizeof(Length);
}

void RingWriter::add(size_t size) {
  auto* const length = reinterpret_cast<Length*>(bytes_ + place(tail_));
  *length = static_cast<Length>(size);
  tail_ += taken_up(size);
}

// In one order for all: either the reader, which is about to sleep, sees the record, or it is seen here that it sleeps.
bool RingWriter::publish() {
  if (published_ == tail_) return false;
  published_ = tail_;
  own_.tail.exchange(tail_, std::memory_order_seq_cst);
  const uint32_t sleeps = theirs_.sleeps.load(std::memory_order_seq_cst);
  return std::exchange(woken_, sleeps) != sleeps;
}

std::span<const uint8_t> RingReader::front() {
  if (head_ == tail_ && !closed_) tail_ = theirs_.tail.load(std::memory_order_acquire);
  const uint64_t unread = tail_ - head_;
  if (unread == 0 || broken_) return {};
  const uint8_t* const at = bytes_ + place(head_);
  const Length length = *reinterpret_cast<const volatile Length*>(at);
  front_ = taken_up(length);
  broken_ = unread > kRingSize || length == 0 || front_ > unread;
  if (broken_) return {};
  return {at + sizeof(Length), length};
}

void RingReader::close() {
  if (!closed_) tail_ = theirs_.tail.load(std::memory_order_acquire);
  closed_ = true;
}

void RingReader::pop() {
  head_ += front_;
}

void RingReader::release() {
  if (own_.head.load(std::memory_order_relaxed) != head_) own_.head.store(head_, std::memory_order_release);
}

bool RingReader::sleep() {
  own_.sleeps.store(++sleeps_, std::memory_order_seq_cst);
  if (!closed_) tail_ = theirs_.tail.load(std::memory_order_seq_cst);
  return tail_ == head_ || broken_;
}

}  // namespace uroce::io

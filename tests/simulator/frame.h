// SPDX-License-Identifier: BSD-2-Clause
// A frame's bytes, Ethernet to ICRC, without FCS: a vector whose memory is used again, and is not filled with zeros
// before the frame is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace uroce::simulator {

// Free memory for frames, of two sizes: without payload, and with 4 KiB of it.
class FramePool {
 public:
  static FramePool& instance() {
    static FramePool pool;
    return pool;
  }
  ~FramePool() {
    for (auto& list : free_) {
      for (void* memory : list) ::operator delete(memory);
    }
  }
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  void* take(size_t size) {
    if (size > kLargest) return ::operator new(size);
    auto& list = list_for(size);
    if (list.empty()) return ::operator new(size <= kSmall ? kSmall : kLarge);
    void* const memory = list.back();
    list.pop_back();
    return memory;
  }
  void give_back(void* memory, size_t size) {
    if (size > kLargest) return ::operator delete(memory);
    list_for(size).push_back(memory);
  }

 private:
  static constexpr size_t kSmall = 192, kLarge = 4352;
  // What is larger is not kept. Nothing is under AddressSanitizer: who reads beyond a frame, or later, is to be seen.
#if defined(__clang__)
  static constexpr size_t kLargest = __has_feature(address_sanitizer) ? 0 : kLarge;
#else
  static constexpr size_t kLargest = kLarge;
#endif

  FramePool() = default;
  std::vector<void*>& list_for(size_t size) {
    return free_[size <= kSmall ? 0 : 1];
  }

  std::array<std::vector<void*>, 2> free_;
};

template <class T>
struct FrameAllocator {
  using value_type = T;
  FrameAllocator() = default;
  template <class U>
  FrameAllocator(const FrameAllocator<U>&) {}

  T* allocate(size_t count) { return static_cast<T*>(FramePool::instance().take(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) { FramePool::instance().give_back(memory, count * sizeof(T)); }
  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
  bool operator==(const FrameAllocator&) const { return true; }
};

using Frame = std::vector<uint8_t, FrameAllocator<uint8_t>>;

}  // namespace uroce::simulator

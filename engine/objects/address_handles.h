// SPDX-License-Identifier: BSD-2-Clause
// The address handles of a device: where UD messages go. Work requests name them by number, so that one which is
// destroyed too early is noticed. Under the progress lock.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/objects/path.h"

namespace uroce::engine {

struct AddressHandle {
  Path path;
  uint32_t number = 0;  // 0: free
};

class AddressHandles {
 public:
  static constexpr uint32_t kSlotBits = 20;
  static constexpr uint32_t kMost = 1u << kSlotBits;

  // So many at a time, kMost at most.
  explicit AddressHandles(uint32_t most = kMost) : most_(most) {}

  // The new one's number. 0: there are too many.
  uint32_t add(const Path& path) {
    if (free_.empty()) {
      if (slots_.size() == most_) return 0;
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    // The generation in the upper bits tells a number from those that the slot had before.
    generation_ = generation_ % (UINT32_MAX >> kSlotBits) + 1;
    slots_[slot] = {path, generation_ << kSlotBits | slot};
    return slots_[slot].number;
  }

  bool remove(uint32_t number) {
    AddressHandle* const handle = find(number);
    if (handle == nullptr) return false;
    handle->number = 0;
    handle->path.to.reset();
    free_.push_back(number & kSlotMask);
    return true;
  }

  AddressHandle* find(uint32_t number) {
    const uint32_t slot = number & kSlotMask;
    if (number == 0 || slot >= slots_.size() || slots_[slot].number != number) return nullptr;
    return &slots_[slot];
  }

 private:
  static constexpr uint32_t kSlotMask = kMost - 1;

  const uint32_t most_;
  std::deque<AddressHandle> slots_;  // addresses stay: packets point to envelopes
  std::vector<uint32_t> free_;
  uint32_t generation_ = 0;
};

}  // namespace uroce::engine

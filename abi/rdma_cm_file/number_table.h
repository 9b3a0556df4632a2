// SPDX-License-Identifier: BSD-2-Clause
// Things with numbers: a new one gets the lowest that is free, as in the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace uroce::rdma_cm {

template <class T>
class NumberTable {
 public:
  uint32_t add(std::shared_ptr<T> thing) {
    if (free_.empty()) {
      things_.push_back(std::move(thing));
      return static_cast<uint32_t>(things_.size() - 1);
    }
    const uint32_t number = *free_.begin();
    things_[number] = std::move(thing);
    free_.erase(free_.begin());
    return number;
  }
  std::shared_ptr<T> find(uint32_t number) const { return number < things_.size() ? things_[number] : nullptr; }
  void remove(uint32_t number) {
    if (number >= things_.size() || !things_[number]) return;
    free_.insert(number);
    things_[number].reset();
  }
  size_t size() const { return things_.size() - free_.size(); }
  // `each` does not add or remove.
  template <class F>
  void for_each(F&& each) const {
    for (const auto& thing : things_) {
      if (thing) each(thing);
    }
  }

 private:
  std::vector<std::shared_ptr<T>> things_;
  std::set<uint32_t> free_;
};

}  // namespace uroce::rdma_cm

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/mr_table.h"

#include <algorithm>
#include <array>
#include <utility>

namespace uroce::memory {

namespace {

// What null regions are read from. Constant: a write would be caught, and counted as a memory fault.
alignas(64) constexpr std::array<uint8_t, MrTable::kMaxPiece> kZeroes{};

constexpr uint32_t kWindowRights = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal;

constexpr uint32_t base_of(uint32_t key) {
  return key & ~WindowTable::kConsumerMask;
}

}  // namespace

MrTable::MrTable(std::function<uint32_t()> random) : random_(std::move(random)), quarantine_(kQuarantine) {}

// --- regions --------------------------------------------------------------------------------------------------------

bool MrTable::usable(uint32_t key) const {
  return key != 0 && regions_.find(key) == nullptr && windows_.find(key) == nullptr &&
         std::find(quarantine_.begin(), quarantine_.end(), key) == quarantine_.end();
}

uint32_t MrTable::add(const MemoryRegion& region) {
  if (region.null && sink_ == nullptr) sink_ = std::make_unique<uint8_t[]>(kMaxPiece);
  MemoryRegion mr = region;
  mr.windows = 0;
  do {
    mr.key = random_();
  } while (!usable(mr.key));
  regions_.insert(mr);
  return mr.key;
}

bool MrTable::remove(uint32_t key) {
  MemoryRegion* mr = regions_.find(key);
  if (mr == nullptr || mr->windows != 0) return false;
  regions_.erase(mr);
  quarantine(key);
  return true;
}

bool MrTable::replace(uint32_t key, const MemoryRegion& region) {
  MemoryRegion* mr = regions_.find(key);
  if (mr == nullptr || mr->windows != 0) return false;
  *mr = region;
  mr->key = key;
  mr->windows = 0;
  return true;
}

// --- windows --------------------------------------------------------------------------------------------------------

// No key with these upper bits may belong to anyone, now or lately.
bool MrTable::usable_for_window(uint32_t key) const {
  if (key == 0 || windows_.find(key) != nullptr) return false;
  const auto same_base = [key](uint32_t other) { return base_of(other) == key; };
  if (std::any_of(quarantine_.begin(), quarantine_.end(), same_base)) return false;
  for (uint32_t low = 0; low <= WindowTable::kConsumerMask; ++low) {
    if (regions_.find(key | low) != nullptr) return false;
  }
  return true;
}

uint32_t MrTable::add_window(WindowType type, uint32_t pd) {
  uint32_t drawn;
  do {
    drawn = random_();
  } while (!usable_for_window(base_of(drawn)));
  windows_.add(drawn, type, pd);
  return drawn;
}

bool MrTable::remove_window(uint32_t key) {
  MemoryWindow* window = windows_.find(key);
  if (window == nullptr) return false;
  unbind(*window);
  quarantine(window->key);
  windows_.remove(key);
  return true;
}

void MrTable::unbind(MemoryWindow& window) {
  if (!window.bound) return;
  --regions_.find(window.region_key)->windows;
  WindowTable::untie(window);
  window.bound = false;
}

bool MrTable::may_bind(const WindowBinding& binding, const MemoryWindow& window) const {
  // Free, and not for nothing (IBTA 10.6.7).
  if (window.type == WindowType::kType2 && (window.bound || binding.length == 0)) return false;
  if (window.type == WindowType::kType1 && (binding.access & kZeroBased)) return false;
  const MemoryRegion* mr = regions_.find(binding.region_key);
  if (mr == nullptr || mr->null) return false;
  uint32_t required = kMwBind;
  if (binding.access & (kRemoteWrite | kRemoteAtomic)) required |= kLocalWrite;
  return translate(mr, binding.pd, binding.address, binding.length, required).result == AccessResult::kOk;
}

bool MrTable::bind(const WindowBinding& binding) {
  MemoryWindow* window = windows_.find(binding.window_key);
  if (window == nullptr || window->pd != binding.pd || base_of(window->key) != base_of(binding.new_key)) return false;
  const bool unbinds = window->type == WindowType::kType1 && binding.length == 0;
  if (!unbinds && !may_bind(binding, *window)) return false;
  unbind(*window);
  window->key = binding.new_key;
  if (unbinds) return true;

  MemoryRegion& mr = *regions_.find(binding.region_key);
  ++mr.windows;
  window->bound = true;
  window->region_key = mr.key;
  window->access = binding.access & kWindowRights;
  window->base = locate(mr.base, mr.iova, mr.length, binding.address, binding.length).address;
  window->iova = (binding.access & kZeroBased) ? 0 : binding.address;
  window->length = binding.length;
  window->qpn = binding.qpn;
  if (window->type == WindowType::kType2) windows_.tie(*window);
  return true;
}

bool MrTable::invalidate(uint32_t key, uint32_t pd, uint32_t qpn) {
  MemoryWindow* window = windows_.find(key);
  if (window == nullptr || window->key != key || window->type != WindowType::kType2 || !window->bound) return false;
  if (window->pd != pd || window->qpn != qpn) return false;
  unbind(*window);
  return true;
}

void MrTable::forget_qp(uint32_t qpn) {
  windows_.for_each_tied(qpn, [this](MemoryWindow& window) { unbind(window); });
}

// --- translation ----------------------------------------------------------------------------------------------------

Translation MrTable::translate_null(uint64_t length, uint32_t required) const {
  if (length > kMaxPiece) return {AccessResult::kOutOfBounds, nullptr};
  if (required & kLocalWrite) return {AccessResult::kOk, sink_.get()};
  return {AccessResult::kOk, const_cast<uint8_t*>(kZeroes.data())};  // to read from
}

AccessResult MrTable::check(const MemoryWindow* window, uint32_t rkey, uint32_t pd, uint32_t qpn, uint32_t required) {
  if (window == nullptr) return AccessResult::kUnknownKey;
  // An unbound window's key, and one that the window had before, name nothing any more.
  if (!window->bound || window->key != rkey) return AccessResult::kInvalidated;
  if (window->pd != pd) return AccessResult::kWrongPd;
  if (window->type == WindowType::kType2 && window->qpn != qpn) return AccessResult::kWrongQp;
  return (window->access & required) == required ? AccessResult::kOk : AccessResult::kNoPermission;
}

Translation MrTable::translate_window(uint32_t rkey, uint32_t pd, uint32_t qpn, uint64_t va, uint64_t length,
                                      uint32_t required) const {
  const MemoryWindow* window = windows_.find(rkey);
  const AccessResult result = check(window, rkey, pd, qpn, required);
  if (result != AccessResult::kOk) return {result, nullptr};
  return locate(window->base, window->iova, window->length, va, length);
}

AccessResult MrTable::check_remote(uint32_t rkey, uint32_t pd, uint32_t qpn, uint32_t required) const {
  if (const MemoryRegion* mr = regions_.find(rkey)) return check(*mr, pd, required);
  return check(windows_.find(rkey), rkey, pd, qpn, required);
}

}  // namespace uroce::memory

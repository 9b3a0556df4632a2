// SPDX-License-Identifier: BSD-2-Clause
// How many objects of each kind a device has out at a time: the limits that it reports hold exactly, and one past them
// is ENOMEM, as in the kernel's drivers. Quota belongs to the engine; a QuotaAccount is the part of it that one open
// device has, which closing gives back whatever the application has left. The verbs shim takes and gives. QPs,
// regions, windows and multicast groups are not among them: the engine's tables for them have their limits themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/spinlock.h"
#include "engine/objects/limits.h"

namespace uroce::engine {

enum class ObjectKind : uint8_t { kPd, kCq, kAh, kSrq, kXrcd, kCount };

inline constexpr size_t kObjectKinds = static_cast<size_t>(ObjectKind::kCount);

// The one place that says which limit counts for what.
constexpr uint32_t limit_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kPd:
      return Limits::kMaxPd;
    case ObjectKind::kCq:
      return Limits::kMaxCq;
    case ObjectKind::kAh:
      return Limits::kMaxAh;
    case ObjectKind::kSrq:
      return Limits::kMaxSrq;
    case ObjectKind::kXrcd:
      return Limits::kMaxXrcd;
    case ObjectKind::kCount:
      break;
  }
  return 0;
}

// Any thread.
class Quota {
 public:
  // False: all are in use.
  bool take(ObjectKind kind) {
    std::lock_guard guard(lock_);
    uint32_t& used = used_[static_cast<size_t>(kind)];
    if (used >= limit_of(kind)) return false;
    ++used;
    return true;
  }
  void give(ObjectKind kind, uint32_t count = 1) {
    std::lock_guard guard(lock_);
    used_[static_cast<size_t>(kind)] -= count;
  }
  uint32_t used(ObjectKind kind) const {
    std::lock_guard guard(lock_);
    return used_[static_cast<size_t>(kind)];
  }

 private:
  mutable SpinLock lock_;
  std::array<uint32_t, kObjectKinds> used_{};
};

// What one open device has of the quota. Any thread. The quota outlives it, or outlives close().
class QuotaAccount {
 public:
  explicit QuotaAccount(Quota& quota) : quota_(&quota) {}
  ~QuotaAccount() { close(); }
  QuotaAccount(const QuotaAccount&) = delete;
  QuotaAccount& operator=(const QuotaAccount&) = delete;

  // False: none is left, or the account is closed.
  bool take(ObjectKind kind) {
    std::lock_guard guard(lock_);
    if (quota_ == nullptr || !quota_->take(kind)) return false;
    ++taken_[static_cast<size_t>(kind)];
    return true;
  }
  // Without effect after close(): objects that are destroyed after their device was closed have been given back.
  void give(ObjectKind kind) {
    std::lock_guard guard(lock_);
    if (quota_ == nullptr) return;
    --taken_[static_cast<size_t>(kind)];
    quota_->give(kind);
  }
  void close() {
    std::lock_guard guard(lock_);
    if (quota_ == nullptr) return;
    for (size_t kind = 0; kind < kObjectKinds; ++kind) quota_->give(static_cast<ObjectKind>(kind), taken_[kind]);
    quota_ = nullptr;
  }

 private:
  SpinLock lock_;
  Quota* quota_;
  std::array<uint32_t, kObjectKinds> taken_{};
};

}  // namespace uroce::engine

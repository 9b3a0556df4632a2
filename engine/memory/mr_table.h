// SPDX-License-Identifier: BSD-2-Clause
// Memory regions and windows, and the one place where a key, an address and a length become a pointer.
// Looked up for every packet by the transport, under the lock of its shard; regions and windows come and go through the
// engine, which holds the locks of all shards then. So a region that has been removed is never touched again. Windows
// are bound by work requests, under the lock of one shard: see use_windows().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/spinlock.h"
#include "engine/memory/key_table.h"
#include "engine/memory/window_table.h"

namespace uroce::memory {

// Access rights; the values of enum ibv_access_flags.
enum Access : uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
  kMwBind = 1u << 4,       // windows can be bound to the region
  kZeroBased = 1u << 5,    // windows: peers count from 0; a region says it by its iova
  kFlushGlobal = 1u << 8,  // the peer may FLUSH with global visibility
  kFlushPersistent = 1u << 9,
};

struct MemoryRegion {
  uint8_t* base = nullptr;  // where the application has it
  uint64_t iova = 0;        // the address that work requests and peers use for `base`
  uint64_t length = 0;      // bytes
  uint32_t access = 0;      // Access bits
  uint32_t pd = 0;          // protection domain
  uint32_t key = 0;         // lkey and rkey alike; 0 marks an empty slot
  uint32_t windows = 0;     // bound to it; MrTable counts them
  bool null = false;        // no memory: what is written is lost, what is read is 0. Local use only.
};

enum class AccessResult : uint8_t { kOk, kUnknownKey, kInvalidated, kWrongPd, kWrongQp, kNoPermission, kOutOfBounds };

struct Translation {
  AccessResult result;
  uint8_t* address;  // valid for the whole range when kOk
};

// A work request that binds a memory window (IBTA 10.6.7).
struct WindowBinding {
  uint32_t window_key;  // the window's current key. Its low 8 bits are not compared: a type 1 window may have been
                        // bound again since, by a work request of another QP
  uint32_t new_key;     // what it is called from now on; the upper 24 bits are equal
  uint32_t region_key;  // lkey of the region
  uint64_t address;     // as the region's own users say it
  uint64_t length;      // bytes; 0 unbinds a type 1 window
  uint32_t access;      // Access bits: kRemote*, kFlushGlobal, kZeroBased; others have no meaning
  uint32_t pd;          // of the QP
  uint32_t qpn;
};

class MrTable {
 public:
  // The limits that the device reports.
  static constexpr uint32_t kMaxRegions = 1u << 20;
  static constexpr uint32_t kMaxWindows = 1u << 20;

  // `random` gives 32 uniformly distributed bits from a CSPRNG; keys must not be guessable (faults.md "Security").
  explicit MrTable(std::function<uint32_t()> random);

  // --- regions ------------------------------------------------------------------------------------------------------
  // Returns the new key, never 0. The range must not wrap around the address space (the caller has checked).
  uint32_t add(const MemoryRegion& region);
  // False: no such key, or windows are bound to it. The key is not handed out again for the next kQuarantine
  // registrations.
  bool remove(uint32_t key);
  // Makes the region `key` what `region` says, under the same key, between two packets. False: as for remove().
  bool replace(uint32_t key, const MemoryRegion& region);

  // Null: no region has this key. Valid until the next change.
  const MemoryRegion* find(uint32_t key) const { return regions_.find(key); }
  size_t size() const { return regions_.size(); }

  // --- windows ------------------------------------------------------------------------------------------------------
  // To be held while a key of the peer is looked up and what it names is used, and while windows are bound and
  // invalidated: then nobody uses a window that has ceased to be bound. Nothing to wait for where there are none.
  std::unique_lock<SpinLock> use_windows() const {
    return windows_.size() == 0 ? std::unique_lock<SpinLock>() : std::unique_lock(windows_in_use_);
  }

  // Returns the key of a new, unbound window. No other key shares its upper 24 bits.
  uint32_t add_window(WindowType type, uint32_t pd);
  // Unbinds and removes it; `key`: any that it ever had. False: no such window.
  bool remove_window(uint32_t key);
  const MemoryWindow* find_window(uint32_t key) const { return windows_.find(key); }
  size_t window_count() const { return windows_.size(); }

  // False: it must not be bound so (MW_BIND_ERR), and is as it was. What is allowed depends on the window's type:
  // IBTA 10.6.7, 11.2.8, wire.md "Memory windows".
  bool bind(const WindowBinding& binding);
  // Local Invalidate and SEND with Invalidate on QP `qpn` (IBTA 9.4.1.1.3, 10.6.7): the key stops working until the
  // window is bound again. False: the key names no type 2 window of this protection domain that is bound on this QP.
  bool invalidate(uint32_t key, uint32_t pd, uint32_t qpn);
  // The QP is gone: type 2 windows that were bound on it are unbound.
  void forget_qp(uint32_t qpn);

  // --- translation --------------------------------------------------------------------------------------------------
  // Checks key, protection domain, permission and bounds (overflow-safe). `length` 0 must not be asked: zero-length
  // transfers check nothing (IBTA C9-88, wire.md "Lengths").
  // For the SGE of a work request of this side; `required`: kLocalRead or kLocalWrite. In a null region a range is at
  // most kMaxPiece long.
  Translation translate_local(uint32_t lkey, uint32_t pd, uint64_t va, uint64_t length, uint32_t required) const {
    return translate(regions_.find(lkey), pd, va, length, required);
  }
  // For a request of the peer of QP `qpn`; `required`: kRemote* bits, kFlushGlobal.
  Translation translate_remote(uint32_t rkey, uint32_t pd, uint32_t qpn, uint64_t va, uint64_t length,
                               uint32_t required) const {
    if (const MemoryRegion* mr = regions_.find(rkey); mr != nullptr) return translate(mr, pd, va, length, required);
    return translate_window(rkey, pd, qpn, va, length, required);
  }
  // The same for the whole of what the key names, however large.
  AccessResult check_remote(uint32_t rkey, uint32_t pd, uint32_t qpn, uint32_t required) const;

  static constexpr size_t kQuarantine = 1024;
  static constexpr size_t kMaxPiece = 4096;  // bytes: the payload of a packet

 private:
  static Translation locate(uint8_t* base, uint64_t iova, uint64_t region_length, uint64_t va, uint64_t length) {
    const uint64_t offset = va - iova;
    if (va < iova || offset > region_length || length > region_length - offset) {
      return {AccessResult::kOutOfBounds, nullptr};
    }
    // The whole address space as a region begins at a null pointer: it knows no arithmetic, and is no address of
    // memory.
    const uintptr_t address = reinterpret_cast<uintptr_t>(base) + offset;
    if (address == 0) return {AccessResult::kOutOfBounds, nullptr};
    return {AccessResult::kOk, reinterpret_cast<uint8_t*>(address)};
  }
  // Protection domain and permission.
  static AccessResult check(const MemoryRegion& mr, uint32_t pd, uint32_t required) {
    if (mr.pd != pd) return AccessResult::kWrongPd;
    return (mr.access & required) == required ? AccessResult::kOk : AccessResult::kNoPermission;
  }
  static AccessResult check(const MemoryWindow* window, uint32_t rkey, uint32_t pd, uint32_t qpn, uint32_t required);
  Translation translate(const MemoryRegion* mr, uint32_t pd, uint64_t va, uint64_t length, uint32_t required) const {
    if (mr == nullptr) return {AccessResult::kUnknownKey, nullptr};
    if (const AccessResult refusal = check(*mr, pd, required); refusal != AccessResult::kOk) return {refusal, nullptr};
    if (mr->null) return translate_null(length, required);
    return locate(mr->base, mr->iova, mr->length, va, length);
  }
  Translation translate_null(uint64_t length, uint32_t required) const;
  Translation translate_window(uint32_t rkey, uint32_t pd, uint32_t qpn, uint64_t va, uint64_t length,
                               uint32_t required) const;

  bool may_bind(const WindowBinding& binding, const MemoryWindow& window) const;
  void unbind(MemoryWindow& window);
  bool usable(uint32_t key) const;
  bool usable_for_window(uint32_t key) const;
  void quarantine(uint32_t key) { quarantine_[quarantine_next_++ % kQuarantine] = key; }

  std::function<uint32_t()> random_;
  KeyTable<MemoryRegion, 0> regions_;
  WindowTable windows_;
  mutable SpinLock windows_in_use_;
  std::vector<uint32_t> quarantine_;  // ring of keys removed last
  size_t quarantine_next_ = 0;
  std::unique_ptr<uint8_t[]> sink_;  // kMaxPiece bytes that null regions are written to; from the first of them on
};

}  // namespace uroce::memory

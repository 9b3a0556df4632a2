// Memory regions and the one place where a key, an address and a length become a pointer.
// Registered and removed by the verbs shim through the engine, looked up for every packet by the transport; both under
// the engine's progress lock, so a region that has been removed is never touched again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace uroce::memory {

// Access rights; the values of enum ibv_access_flags.
enum Access : uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
  kMwBind = 1u << 4,
  kZeroBased = 1u << 5,
  kFlushGlobal = 1u << 8,
  kFlushPersistent = 1u << 9,
};

struct MemoryRegion {
  uint8_t* base = nullptr;     // where the application has it
  uint64_t iova = 0;           // the address that work requests and peers use for `base`
  uint64_t length = 0;         // bytes
  uint32_t access = 0;         // Access bits
  uint32_t pd = 0;             // protection domain
  uint32_t key = 0;            // lkey and rkey alike; 0 marks an empty slot
  bool invalidatable = false;  // SEND with Invalidate may end it: memory windows of type 2, not plain regions
  bool valid = true;           // false after an invalidation
};

enum class AccessResult : uint8_t { kOk, kUnknownKey, kInvalidated, kWrongPd, kNoPermission, kOutOfBounds };

struct Translation {
  AccessResult result;
  uint8_t* address;  // valid for the whole range when kOk
};

// What a bind asks for.
struct WindowBinding {
  uint32_t window_key;
  uint32_t new_key;
  uint32_t region_key;
  uint64_t address;
  uint64_t length;
  uint32_t access;
  uint32_t pd;
  uint32_t qpn;
};

class MrTable {
 public:
  // `random` gives 32 uniformly distributed bits from a CSPRNG; keys must not be guessable (faults.md, Security).
  explicit MrTable(std::function<uint32_t()> random);

  // Returns the new key, never 0. The range must not wrap around the address space (the caller has checked).
  uint32_t add(const MemoryRegion& region);
  // False: no such key. The key is not handed out again for the next kQuarantine registrations.
  bool remove(uint32_t key);

  // SEND with Invalidate (IBTA 9.4.1.1.3): the key stops working until its owner renews it. False: no such key, of
  // another protection domain, or of a kind that a peer must not invalidate.
  bool invalidate(uint32_t key, uint32_t pd, uint32_t qpn);

  // Checks key, protection domain, permission and bounds (overflow-safe). `length` 0 must not be asked: zero-length
  // transfers check nothing (IBTA C9-88, wire.md "Zero-length READ/WRITE").
  // For the SGE of a work request of this side; `required`: kLocalRead or kLocalWrite.
  Translation translate_local(uint32_t lkey, uint32_t pd, uint64_t va, uint64_t length, uint32_t required) const {
    return translate(find(lkey), pd, va, length, required);
  }
  // For a request of the peer of QP `qpn`; `required`: kRemote* bits.
  Translation translate_remote(uint32_t rkey, uint32_t pd, uint32_t /*qpn*/, uint64_t va, uint64_t length,
                               uint32_t required) const {
    return translate(find(rkey), pd, va, length, required);
  }

  bool bind(const WindowBinding&) { return false; }
  AccessResult check_remote(uint32_t rkey, uint32_t pd, uint32_t /*qpn*/, uint32_t required) const {
    const MemoryRegion* mr = find(rkey);
    if (mr == nullptr) return AccessResult::kUnknownKey;
    return translate(mr, pd, mr->iova, 1, required).result;
  }

  const MemoryRegion* find(uint32_t key) const {
    if (key == 0) return nullptr;
    for (size_t i = key & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i];
      if (slots_[i].key == 0) return nullptr;
    }
  }

  size_t size() const { return size_; }

  static constexpr size_t kQuarantine = 1024;

 private:
  static Translation translate(const MemoryRegion* mr, uint32_t pd, uint64_t va, uint64_t length, uint32_t required) {
    if (mr == nullptr) return {AccessResult::kUnknownKey, nullptr};
    if (!mr->valid) return {AccessResult::kInvalidated, nullptr};
    if (mr->pd != pd) return {AccessResult::kWrongPd, nullptr};
    if ((mr->access & required) != required) return {AccessResult::kNoPermission, nullptr};
    const uint64_t offset = va - mr->iova;
    if (va < mr->iova || offset > mr->length || length > mr->length - offset) {
      return {AccessResult::kOutOfBounds, nullptr};
    }
    return {AccessResult::kOk, mr->base + offset};
  }
  void insert(const MemoryRegion& region);
  void grow();
  bool usable(uint32_t key) const;

  std::function<uint32_t()> random_;
  std::vector<MemoryRegion> slots_;  // open addressing; keys are random, so the key is its own hash
  size_t mask_;
  size_t size_ = 0;
  std::vector<uint32_t> quarantine_;  // ring of keys removed last
  size_t quarantine_next_ = 0;
};

}  // namespace uroce::memory

// SPDX-License-Identifier: BSD-2-Clause
// The memory of one host under the fuzzers: four regions with guard pages between them, their registrations, and what
// must never change. Regions can be taken away and given back, by key and by page protection, as applications do it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/memory/mr_table.h"
#include "engine/queue/work_queue.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {

class Arena {
 public:
  enum Region : uint8_t {
    kShared,   // everything is allowed, to the peer as well
    kPrivate,  // local writes only
    kSource,   // local reads only: must never change
    kForeign,  // of another protection domain: must never change
    kRegions
  };
  static constexpr size_t kPage = 4096;
  static constexpr std::array<size_t, kRegions> kPages = {2, 2, 1, 1};

  Arena(memory::MrTable& mrs, uint32_t pd);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void remove(Region region);
  void add(Region region);  // under a new key; nothing if it has one
  // One of: no access, read only, as before.
  void protect(Region region, uint8_t how);

  static size_t size(Region region) { return kPages[region] * kPage; }
  // What work requests call the byte at `offset`. Not its address in memory, but the same in every run.
  static uint64_t iova(Region region, uint64_t offset) { return 0x7000'0000 + region * uint64_t{0x10000} + offset; }
  uint32_t key(Region region) const { return keys_[region]; }

  // A range that is right most of the time: small, in its region, with its key. `limit`: of the usual lengths.
  queue::Sge range(Input& input, uint32_t limit) const;

  // Guards and what nobody may write are as they were. Lifts all protection.
  void check_untouched();

 private:
  std::span<uint8_t> bytes(Region region);

  memory::MrTable& mrs_;
  const uint32_t pd_;
  std::span<uint8_t> all_;
  std::array<uint32_t, kRegions> keys_{};
  uint32_t stale_key_ = 0;
};

}  // namespace uroce::fuzz

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/umem.h"

#include <cerrno>
#include <sys/mman.h>

namespace uroce::io {

UmemArea::~UmemArea() {
  if (base_ != nullptr) munmap(base_, size_);
}

int UmemArea::map(size_t size) {
  assert(base_ == nullptr);
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return errno;
  base_ = static_cast<uint8_t*>(base);
  size_ = size;
  madvise(base, size, MADV_HUGEPAGE);  // fewer TLB misses; only a hint
  return madvise(base, size, MADV_DONTFORK) == 0 ? 0 : errno;
}

TxSlots::TxSlots(uint64_t first_address, uint32_t slot_count, uint32_t chunk_size, uint32_t chunks_per_slot)
    : first_address_(first_address), slot_size_(chunk_size * chunks_per_slot), chunks_under_way_(slot_count, 0) {
  free_.reserve(slot_count);
  for (uint32_t slot = slot_count; slot > 0; --slot) free_.push_back(slot - 1);
}

}  // namespace uroce::io

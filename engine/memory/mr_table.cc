#include "engine/memory/mr_table.h"

#include <algorithm>
#include <utility>

namespace uroce::memory {

MrTable::MrTable(std::function<uint32_t()> random)
    : random_(std::move(random)), slots_(64), mask_(slots_.size() - 1), quarantine_(kQuarantine) {}

bool MrTable::usable(uint32_t key) const {
  return key != 0 && find(key) == nullptr &&
         std::find(quarantine_.begin(), quarantine_.end(), key) == quarantine_.end();
}

uint32_t MrTable::add(const MemoryRegion& region) {
  if ((size_ + 1) * 2 > slots_.size()) grow();
  MemoryRegion mr = region;
  do {
    mr.key = random_();
  } while (!usable(mr.key));
  insert(mr);
  ++size_;
  return mr.key;
}

void MrTable::insert(const MemoryRegion& region) {
  size_t i = region.key & mask_;
  while (slots_[i].key != 0) i = (i + 1) & mask_;
  slots_[i] = region;
}

void MrTable::grow() {
  std::vector<MemoryRegion> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const MemoryRegion& mr : old) {
    if (mr.key != 0) insert(mr);
  }
}

bool MrTable::remove(uint32_t key) {
  const MemoryRegion* mr = find(key);
  if (mr == nullptr) return false;
  // Backward-shift deletion keeps probe sequences without gaps.
  size_t hole = static_cast<size_t>(mr - slots_.data());
  for (size_t i = (hole + 1) & mask_; slots_[i].key != 0; i = (i + 1) & mask_) {
    const size_t home = slots_[i].key & mask_;
    if (((i - home) & mask_) >= ((i - hole) & mask_)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = MemoryRegion{};
  --size_;
  quarantine_[quarantine_next_++ % kQuarantine] = key;
  return true;
}

bool MrTable::invalidate(uint32_t key, uint32_t pd, uint32_t /*qpn*/) {
  const MemoryRegion* mr = find(key);
  if (mr == nullptr || mr->pd != pd || !mr->invalidatable || !mr->valid) return false;
  slots_[static_cast<size_t>(mr - slots_.data())].valid = false;
  return true;
}

}  // namespace uroce::memory

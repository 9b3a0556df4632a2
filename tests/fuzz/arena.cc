// SPDX-License-Identifier: BSD-2-Clause
#include "tests/fuzz/arena.h"

#include <algorithm>
#include <sys/mman.h>

#include "tests/fuzz/check.h"

namespace uroce::fuzz {

namespace {

constexpr uint8_t kUntouched = 0xa5;
constexpr std::array<uint32_t, Arena::kRegions> kAccess = {
    memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic, memory::kLocalWrite,
    memory::kLocalRead, memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic};

// A guard page, then every region with a guard page behind it.
constexpr size_t all_pages() {
  size_t pages = 1;
  for (const size_t region : Arena::kPages) pages += region + 1;
  return pages;
}

bool untouched(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == kUntouched; });
}

}  // namespace

Arena::Arena(memory::MrTable& mrs, uint32_t pd) : mrs_(mrs), pd_(pd) {
  const size_t size = all_pages() * kPage;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "there is memory");
  all_ = {static_cast<uint8_t*>(memory), size};
  std::fill(all_.begin(), all_.end(), kUntouched);
  for (uint8_t region = 0; region < kRegions; ++region) add(Region{region});
}

Arena::~Arena() {
  munmap(all_.data(), all_.size());
}

std::span<uint8_t> Arena::bytes(Region region) {
  size_t page = 1;
  for (uint8_t before = 0; before < region; ++before) page += kPages[before] + 1;
  return all_.subspan(page * kPage, size(region));
}

void Arena::remove(Region region) {
  if (keys_[region] == 0) return;
  check(mrs_.remove(keys_[region]), "a region that was added can be removed");
  stale_key_ = keys_[region];
  keys_[region] = 0;
}

void Arena::add(Region region) {
  if (keys_[region] != 0) return;
  keys_[region] = mrs_.add({.base = bytes(region).data(),
                            .iova = iova(region, 0),
                            .length = size(region),
                            .access = kAccess[region],
                            .pd = region == kForeign ? pd_ + 1 : pd_});
}

void Arena::protect(Region region, uint8_t how) {
  constexpr int kHow[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
  const std::span<uint8_t> range = bytes(region);
  check(mprotect(range.data(), range.size(), kHow[how % 3]) == 0, "memory can be protected");
}

queue::Sge Arena::range(Input& input, uint32_t limit) const {
  const uint8_t choice = input.byte();
  const auto region = Region{static_cast<uint8_t>(choice >> 6 == 3 ? choice >> 4 & 3 : choice >> 7)};
  const auto room = static_cast<uint32_t>(size(region));
  const uint32_t offset = input.below(room);
  queue::Sge sge{iova(region, offset), std::min(input.below(limit + 1), room - offset), keys_[region]};
  switch (choice & 15) {
    case 1:
      sge.lkey = stale_key_;
      break;
    case 2:
      sge.lkey = input.dword();
      break;
    case 3:  // up to the end of the region, or past it by one or two bytes
      sge.length = std::min(input.flag() ? input.below(limit + 1) : limit, room);
      sge.address = iova(region, room - sge.length + input.below(3));
      break;
    case 4:
      sge.length = input.dword();
      break;
    case 5:
      sge.address -= input.byte() + offset;
      break;
    case 6:
      sge.address = uint64_t{0} - input.byte();
      break;
    case 7:
      sge.length = 0;
      break;
    case 8:
      sge = {iova(region, offset & ~7u), 8, keys_[region]};  // what atomics need
      break;
    default:
      break;
  }
  return sge;
}

void Arena::check_untouched() {
  check(mprotect(all_.data(), all_.size(), PROT_READ | PROT_WRITE) == 0, "protection can be lifted");
  check(untouched(all_.first(kPage)), "the first guard is untouched");
  for (uint8_t region = 0; region < kRegions; ++region) {
    const std::span<uint8_t> range = bytes(Region{region});
    check(untouched({range.data() + range.size(), kPage}), "the guard behind a region is untouched");
  }
  check(untouched(bytes(kSource)), "memory without the right to write is untouched");
  check(untouched(bytes(kForeign)), "memory of another protection domain is untouched");
}

}  // namespace uroce::fuzz

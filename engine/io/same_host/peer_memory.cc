// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer_memory.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/page_hold.h"

namespace uroce::io {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kWriterSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

bool has_seals(int memory, int seals) {
  const int known = fcntl(memory, F_GET_SEALS);
  return known >= 0 && (known & seals) == seals;
}

}  // namespace

int PeerMemory::make(UniqueFd& memory) {
  UniqueFd made(memfd_create("uroce peer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made || ftruncate(made.get(), kWordsSize + kRingSize) != 0 || fcntl(made.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return errno;
  }
  memory = std::move(made);
  return 0;
}

// Sealed pages stay.
bool PeerMemory::is_sealed(int memory, bool all_there) {
  constexpr off_t kBlock = 512;
  if (!has_seals(memory, kSizeSeals | kWriterSeals)) return false;
  struct stat status {};
  return !all_there ||
         (fstat(memory, &status) == 0 && status.st_blocks * kBlock >= static_cast<off_t>(kWordsSize + kRingSize));
}

std::unique_ptr<PeerMemory> PeerMemory::for_writing(int memory, bool of_stranger) {
  std::unique_ptr<PeerMemory> mapped(new PeerMemory);
  if (!has_seals(memory, kSizeSeals) || !mapped->map(memory, PROT_READ | PROT_WRITE)) return nullptr;
  if (of_stranger && (!mapped->make_all() || !mapped->hold())) return nullptr;
  return fcntl(memory, F_ADD_SEALS, kWriterSeals) == 0 ? std::move(mapped) : nullptr;
}

// It has zeros, and nobody reads it yet. False: there is no memory for them.
bool PeerMemory::make_all() {
  if (madvise(base_, kWordsSize + kRingSize, MADV_POPULATE_WRITE) == 0) return true;  // Linux 5.14
  if (errno != EINVAL) return false;
  std::memset(base_, 0, kWordsSize + kRingSize);
  return true;
}

std::unique_ptr<const PeerMemory> PeerMemory::for_reading(int memory, bool of_stranger) {
  std::unique_ptr<PeerMemory> mapped(new PeerMemory);
  if (!is_sealed(memory, of_stranger) || !mapped->map(memory, PROT_READ)) return nullptr;
  return of_stranger && !mapped->hold() ? nullptr : std::move(mapped);
}

// The broker does so as well until both have it, and may have held another page (base/page_hold.h): no fork() waits.
bool PeerMemory::hold() {
  if (hold_page(base_, hold_) != 0) return false;
  ForkGuard().close_in_children(hold_.get());  // a child that comes between the two keeps it, which nobody sees
  return true;
}

bool PeerMemory::map(int memory, int protection) {
  static_assert(sizeof(PeerWords) <= kWordsSize);
  constexpr size_t kSize = kWordsSize + kRingSize;
  struct stat status {};
  if (fstat(memory, &status) != 0 || status.st_size != static_cast<off_t>(kSize)) return false;
  void* const room = mmap(nullptr, kSize + kRingSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  base_ = static_cast<uint8_t*>(room);
  const auto place = [&](size_t at, size_t size, size_t offset) {
    constexpr int kFlags = MAP_SHARED | MAP_FIXED;
    return mmap(base_ + at, size, protection, kFlags, memory, static_cast<off_t>(offset)) != MAP_FAILED;
  };
  return place(0, kSize, 0) && place(kSize, kRingSize, kWordsSize) &&
         madvise(base_, kSize + kRingSize, MADV_DONTFORK) == 0;
}

PeerMemory::~PeerMemory() {
  if (base_ != nullptr) munmap(base_, kWordsSize + 2 * kRingSize);
  if (hold_) ForkGuard().close(hold_.release());
}

}  // namespace uroce::io

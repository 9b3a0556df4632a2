// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/channel_index.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fork.h"

namespace uroce::rdma_cm {
namespace {

// A place that was freed is used again, and none is ever given back: a reader may stand on it.
struct Entry {
  std::atomic<uint64_t> inode{0};  // 0: free
  std::atomic<uint64_t> device{0};
  std::atomic<uint32_t> owner{0};
  Entry* next = nullptr;
};

constexpr size_t kBuckets = 1024;
constinit std::array<std::atomic<Entry*>, kBuckets> buckets{};
constinit std::atomic<uint32_t> in_use{0};
constinit ForkProofLock writers;

Entry* find_entry(const Identity& identity) {
  Entry* entry = buckets[identity.inode % kBuckets].load(std::memory_order_acquire);
  while (entry != nullptr && (entry->inode.load(std::memory_order_acquire) != identity.inode ||
                              entry->device.load(std::memory_order_relaxed) != identity.device)) {
    entry = entry->next;
  }
  return entry;
}

}  // namespace

// Past the hook of fstat(), which asks here.
std::optional<Identity> Identity::of(int fd) {
  struct stat status {};
  const int error = errno;
  const bool good = syscall(SYS_fstat, fd, &status) == 0 && S_ISSOCK(status.st_mode);
  errno = error;
  if (!good) return std::nullopt;
  return Identity{status.st_dev, status.st_ino};
}

namespace channel_index {

bool any() {
  return in_use.load(std::memory_order_acquire) != 0;
}

uint32_t owner(const Identity& identity) {
  if (identity.inode == 0) return 0;
  const Entry* const entry = find_entry(identity);
  return entry == nullptr ? 0 : entry->owner.load(std::memory_order_relaxed);
}

void add(const Identity& identity, uint32_t owner) {
  const std::lock_guard guard(writers);
  std::atomic<Entry*>& bucket = buckets[identity.inode % kBuckets];
  Entry* entry = find_entry(identity);  // of a parent that has closed it
  if (entry == nullptr) {
    for (entry = bucket.load(); entry != nullptr && entry->inode.load() != 0;) entry = entry->next;
  } else {
    in_use.fetch_sub(1);
  }
  const bool fresh = entry == nullptr;
  if (fresh) entry = new Entry;
  entry->device.store(identity.device, std::memory_order_relaxed);
  entry->owner.store(owner, std::memory_order_relaxed);
  entry->inode.store(identity.inode, std::memory_order_release);
  if (fresh) {
    entry->next = bucket.load();
    bucket.store(entry, std::memory_order_release);
  }
  in_use.fetch_add(1, std::memory_order_release);
}

void remove(const Identity& identity) {
  const std::lock_guard guard(writers);
  Entry* const entry = find_entry(identity);
  if (entry == nullptr) return;
  entry->inode.store(0, std::memory_order_release);
  in_use.fetch_sub(1, std::memory_order_release);
}

}  // namespace channel_index
}  // namespace uroce::rdma_cm

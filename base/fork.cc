// SPDX-License-Identifier: BSD-2-Clause
#include "base/fork.h"

#include <algorithm>
#include <cassert>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/lock_watch.h"

namespace uroce {

namespace {

std::atomic<uint32_t> fallback{0};
std::atomic<uint32_t> last_generation{0};

ForkProofLock guard_lock;
std::vector<int>& descriptors() {
  static auto* const all = new std::vector<int>;
  return *all;
}

void before_fork() {
  guard_lock.lock();
}
void in_parent() {
  guard_lock.unlock();
}
// Closing takes nothing from the parent: what a descriptor stands for lasts until the last of them is closed.
void in_child() {
  fork_detail::generation->store(0, std::memory_order_relaxed);  // where the kernel did not
  fork_detail::begin_generation();
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  guard_lock.unlock();
}

// Before all other initialisation, of ours and of applications.
__attribute__((constructor(101))) void watch_forks() {
  constexpr size_t kSize = 1;  // rounded up to a page
  void* page = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && madvise(page, kSize, MADV_WIPEONFORK) == 0) {
    fork_detail::generation = new (page) std::atomic<uint32_t>{0};
  }
  descriptors();
  pthread_atfork(before_fork, in_parent, in_child);
}

}  // namespace

namespace fork_detail {

std::atomic<uint32_t>* generation = &fallback;

// The number is taken before it is shown: a child that is forked in between takes the next one.
uint32_t begin_generation() {
  uint32_t seen = 0;
  const uint32_t mine = last_generation.fetch_add(1) + 1;
  return generation->compare_exchange_strong(seen, mine) ? mine : seen;
}

}  // namespace fork_detail

bool ForkProofLock::try_lock() {
  const uint32_t mine = process_generation();
  uint32_t holder = holder_.load(std::memory_order_relaxed);
  return holder != mine && holder_.compare_exchange_strong(holder, mine, std::memory_order_acquire);
}

void ForkProofLock::lock() {
  for (int attempts = 0; !try_lock(); ++attempts) {
    if (attempts < 64) {
      sched_yield();
    } else {
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
  }
}

ForkGuard::ForkGuard() {
  assert(LockWatch::may_wait());
  guard_lock.lock();
}
ForkGuard::~ForkGuard() {
  guard_lock.unlock();
}

void ForkGuard::close_in_children(int fd) {
  if (fd >= 0) descriptors().push_back(fd);
}

void ForkGuard::close(int fd) {
  forget(fd);
  if (fd >= 0) ::close(fd);
}

void ForkGuard::forget(int fd) {
  std::vector<int>& all = descriptors();
  const auto found = std::find(all.begin(), all.end(), fd);
  if (found == all.end()) return;
  *found = all.back();
  all.pop_back();
}

}  // namespace uroce

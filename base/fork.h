// SPDX-License-Identifier: BSD-2-Clause
// What fork() does to a library with threads, sockets and locks, and what we do about it (verbs-abi.md
// "Pitfalls"). The child has a copy of every object and none of the threads behind them; what it got that way belongs
// to the parent and is an orphan in the child. Three rules keep the parent intact and the child alive:
//  - whoever holds process state remembers the process_generation() it was made in, and is not touched in another;
//  - what a process has one of is per_process(): a child makes its own on demand;
//  - descriptors that stand for the netdev are closed in the child at once (ForkGuard), so that it keeps nothing
//    attached when the parent goes.
// No lock of ours is held across fork() but ForkGuard's: a child waits for nobody, whatever other threads were doing.
// Programs started by exec inherit nothing: all descriptors are close-on-exec. vfork() and posix_spawn() run no code of
// ours in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace uroce {

namespace fork_detail {
// In memory that the kernel gives to a child wiped (MADV_WIPEONFORK), so that no way to fork goes unnoticed.
extern std::atomic<uint32_t>* generation;
uint32_t begin_generation();
}  // namespace fork_detail

// Never 0, and another one in every process that came from one another by fork(). Any thread, any time.
inline uint32_t process_generation() {
  const uint32_t current = fork_detail::generation->load(std::memory_order_relaxed);
  return __builtin_expect(current != 0, 1) ? current : fork_detail::begin_generation();
}

// A lock that a fork() does not leave locked: in the child, what a thread of the parent held is free. For state that
// may be found half changed then. Waiting is for milliseconds at most.
class ForkProofLock {
 public:
  bool try_lock();
  void lock();
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t> holder_{0};  // generation of whoever holds it
};

// While one exists, no other thread forks. Held while a descriptor is made or closed that a child must not keep.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // `fd`, which the caller has just made, is closed in children. Without effect on what is no descriptor. Throws
  // std::bad_alloc.
  void close_in_children(int fd);
  // Closes it here, and no longer in children. Not in a child, where the number may be another's by now.
  void close(int fd);
  // As close(), where somebody else does that while the guard is held.
  void forget(int fd);
};

// The T of this process, made on first use and never destroyed: applications use verbs until the very end.
template <class T>
T& per_process() {
  struct Own {
    const uint32_t generation;
    Own* const inherited;  // stays as it was
    T value{};
  };
  static std::atomic<Own*> current{nullptr};
  Own* seen = current.load(std::memory_order_acquire);
  const uint32_t generation = process_generation();
  while (seen == nullptr || seen->generation != generation) {
    auto made = std::unique_ptr<Own>(new Own{generation, seen});
    if (current.compare_exchange_strong(seen, made.get(), std::memory_order_acq_rel)) return made.release()->value;
  }
  return seen->value;
}

}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// A test-and-test-and-set lock for sections of a few dozen instructions. On a machine with as few cores as threads the
// holder may be descheduled, so waiting yields soon. Yielding does not let a thread of lower priority run, though: who
// waits for long sleeps now and then, or a real-time thread would wait for ever for a holder that it keeps off its
// core.
#pragma once

#include <atomic>
#include <cerrno>
#include <ctime>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace uroce {

template <std::memory_order kUnlock>
class BasicSpinLock {
 public:
  bool try_lock() {
    return !locked_.load(std::memory_order_seq_cst) && !locked_.exchange(true, std::memory_order_seq_cst);
  }
  void lock() {
    constexpr int kSpins = 64, kYields = 256;
    for (int attempts = 0; !try_lock(); ++attempts) {
      if (attempts < kSpins) {
        __builtin_ia32_pause();
      } else if (attempts < kSpins + kYields) {
        sched_yield();
      } else {
        nap();
      }
    }
  }
  void unlock() { locked_.store(false, kUnlock); }

 private:
  // Not nanosleep(), which is a cancellation point.
  static void nap() {
    const int before = errno;
    const timespec time{0, 50'000};
    syscall(SYS_nanosleep, &time, nullptr);
    errno = before;
  }

  std::atomic<bool> locked_{false};
};

using SpinLock = BasicSpinLock<std::memory_order_release>;

// Where "leave work, then fail to lock" and "unlock, then look for work" must not miss each other (Progress). Unlocking
// is a locked instruction for it.
using OrderedSpinLock = BasicSpinLock<std::memory_order_seq_cst>;

// Of what the application may have promised to use from one thread at a time: then there is nothing to lock.
class OptionalLock {
 public:
  explicit OptionalLock(bool needed = true) : needed_(needed) {}
  void lock() {
    if (needed_) lock_.lock();
  }
  void unlock() {
    if (needed_) lock_.unlock();
  }
  bool needed() const { return needed_; }

 private:
  SpinLock lock_;
  const bool needed_;
};

}  // namespace uroce

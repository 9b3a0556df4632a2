// A test-and-test-and-set lock for sections of a few dozen instructions. On a machine with as few cores as threads the
// holder may be descheduled, so waiting yields soon.
//
// Sequentially consistent on purpose: "leave work, then fail to lock" and "unlock, then look for work" must not miss
// each other (Progress).
#pragma once

#include <atomic>
#include <sched.h>

namespace uroce {

class SpinLock {
 public:
  bool try_lock() {
    return !locked_.load(std::memory_order_seq_cst) && !locked_.exchange(true, std::memory_order_seq_cst);
  }
  void lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      if (spins < 64) {
        __builtin_ia32_pause();
      } else {
        sched_yield();
      }
    }
  }
  void unlock() { locked_.store(false, std::memory_order_seq_cst); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace uroce

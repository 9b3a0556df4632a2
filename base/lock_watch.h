// SPDX-License-Identifier: BSD-2-Clause
// What is under a shard's lock waits for nobody (progress.md "Progress"): the other locks that are taken there
// are LeafMutexes, held for a few instructions, and spin locks. Builds with AddressSanitizer watch that: a thread that
// has a shard's lock and takes a ForkGuard or, in tests (tests/watched_mutex.cc), any other mutex ends the program.
#pragma once

#include <mutex>

#include "base/spinlock.h"

#if defined(__SANITIZE_ADDRESS__)
#define UROCE_WATCHES_LOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UROCE_WATCHES_LOCKS 1
#endif
#endif

namespace uroce {

#ifdef UROCE_WATCHES_LOCKS
class LockWatch {
 public:
  static void enter() { ++shards_; }
  static void leave() { --shards_; }
  static void begin_leaf() { ++leaves_; }
  static void end_leaf() { --leaves_; }
  // Whether the thread may take a lock that others hold for longer.
  static bool may_wait() { return shards_ == 0 || leaves_ > 0; }

 private:
  inline static thread_local int shards_ = 0, leaves_ = 0;
};
#else
class LockWatch {
 public:
  static void enter() {}
  static void leave() {}
  static void begin_leaf() {}
  static void end_leaf() {}
  static bool may_wait() { return true; }
};
#endif

class ShardLock {
 public:
  bool try_lock() {
    if (!lock_.try_lock()) return false;
    LockWatch::enter();
    return true;
  }
  void lock() {
    lock_.lock();
    LockWatch::enter();
  }
  void unlock() {
    LockWatch::leave();
    lock_.unlock();
  }

 private:
  OrderedSpinLock lock_;
};

// A mutex that may be taken under a shard's lock: whoever has it waits for nothing.
class LeafMutex {
 public:
  void lock() {
    LockWatch::begin_leaf();
    mutex_.lock();
    LockWatch::end_leaf();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace uroce

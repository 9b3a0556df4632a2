// SPDX-License-Identifier: BSD-2-Clause
// The mutexes of a test program: none is taken under a shard's lock (base/lock_watch.h).
#include "tests/watched_mutex.h"

#include "base/lock_watch.h"

#ifdef UROCE_WATCHES_LOCKS
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const Lock real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (!uroce::LockWatch::may_wait()) {
    std::fputs("a mutex is taken under a shard's lock (base/lock_watch.h)\n", stderr);
    __sanitizer_print_stack_trace();
    std::abort();
  }
  return real(mutex);
}
#endif

namespace uroce::test {
void watch_mutexes() {}
}  // namespace uroce::test

// SPDX-License-Identifier: BSD-2-Clause
// Objects that a child has inherited through fork(). The engine behind them works in the parent (base/fork.h),
// so in the child they are empty shells: what would create, change or post says EIO, as on a device that was pulled;
// queues have nothing; and destroying takes the shell alone, in any order and without waiting for anybody: threads of
// the parent may have been in the middle of anything. Every verb asks here before it touches a lock or the engine.
#pragma once

#include "abi/verbs/objects.h"
#include "base/fork.h"
#include "process/host.h"

namespace uroce::verbs {

inline bool orphaned(ibv_context* context) {
  return __builtin_expect(from(context).process != process_generation(), 0);
}

// As orphaned(), where the verb then says EIO.
inline bool refuses_orphan(ibv_context* context) {
  if (!orphaned(context)) return false;
  engine::Host::tell_of_orphans();
  return true;
}

// Destroys the orphan. What it shares with others stays for them, and lives as long as the child.
template <class Object>
int forget(Object& orphan) {
  delete &orphan;
  return 0;
}

// Destroys a QP or anything else whose parts may have been found half changed: those are left alone.
template <class Object>
int abandon(Object& orphan) {
  ::operator delete(&orphan);
  return 0;
}

}  // namespace uroce::verbs

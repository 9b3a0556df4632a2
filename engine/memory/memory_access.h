// SPDX-License-Identifier: BSD-2-Clause
// Access to memory that belongs to the application. It was registered, but nothing pins it: the application may unmap
// or protect it at any time, also while we copy. Then the access fails, and the process lives (faults.md, 42).
//
// How: the access runs behind a recovery point of its thread and says which memory it is about to touch. SIGSEGV and
// SIGBUS for that memory lead back to the recovery point. All others go to whoever handled them before: those of the
// application, also of a signal handler of its that interrupts the access, and those that a bug of ours causes.
//
// What it cannot do: an application that installs a handler of its own after it has registered memory for the last
// time, and does not chain, gets these faults itself. A fault that the thread has blocked kills the process, whatever
// the handlers; see keep_faults_unblocked().
//
// Called by the transport where it writes to memory, by the packet I/O where it reads payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"

namespace uroce::memory {

// Makes sure that our handler is in place; call before the first access and whenever memory is registered, because the
// application may have installed its own meanwhile. Returns 0 or an errno value.
int install_fault_handler();

// A thread's first access unblocks SIGSEGV and SIGBUS in it. The application may block them again, say when it makes
// threads that are to inherit that, and nothing but a system call shows it: this call looks once in a millisecond.
void keep_faults_unblocked(Time now);

// An access to application memory. Asked by the signal handler: `covers` says whether any byte of [from, to) belongs to
// what the access may touch.
struct GuardedAccess {
  void (*run)(void* argument);
  bool (*covers)(void* argument, uintptr_t from, uintptr_t to);
  void* argument;
};

// Runs it. False: it touched memory that is not there or does not allow it, and was abandoned where it was; it must own
// nothing (locks, heap) at such a point.
bool run_guarded(const GuardedAccess& access);

// Whether the two stretches of memory have a byte in common.
inline bool overlap(const void* base, size_t size, uintptr_t from, uintptr_t to) {
  const auto begin = reinterpret_cast<uintptr_t>(base);
  return size != 0 && begin < to && from <= begin + (size - 1);
}

// The same for callables: run() and covers(from, to).
template <class Run, class Covers>
bool guarded(Run&& run, Covers&& covers) {
  struct Both {
    Run& run;
    Covers& covers;
  } both{run, covers};
  return run_guarded(
      {[](void* argument) { static_cast<Both*>(argument)->run(); },
       [](void* argument, uintptr_t from, uintptr_t to) { return static_cast<Both*>(argument)->covers(from, to); },
       &both});
}

// For an access to one piece of memory.
template <class Run>
bool guarded(const void* base, size_t size, Run&& run) {
  return guarded(run, [=](uintptr_t from, uintptr_t to) { return overlap(base, size, from, to); });
}

// An atomic operation on eight bytes at an address that no instruction takes: atomic among callers of this function
// only. `add`: fetch and add, else compare and swap (IBTA 9.4.5). False: not accessible; else `found` is the value
// before.
struct AtomicOperation {
  bool add;
  uint64_t operand;  // to add, or to store
  uint64_t compare;
};
bool atomic_unaligned(uint8_t* address, const AtomicOperation& operation, uint64_t& found);

// From our memory or application memory to its place, in ascending order (ordered_copy.h). False: a part of it was not
// accessible; how much was copied is unknown.
bool copy(void* to, const void* from, size_t size);
// The same for pieces of `size` bytes each, one behind the other.
bool copy_pieces(uint8_t* to, std::span<const uint8_t* const> from, size_t size);

}  // namespace uroce::memory

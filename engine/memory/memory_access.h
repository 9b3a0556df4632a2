// Access to memory that belongs to the application. It was registered, but nothing pins it: the application may unmap
// or protect it at any time, also while we copy. Then the access fails, and the process lives (faults.md, 42).
//
// How: the access runs behind a recovery point of its thread; SIGSEGV and SIGBUS that it raises lead back there. All
// other signals of these kinds go to whoever handled them before.
//
// Called by the transport where it writes to memory, by the packet I/O where it reads payload.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::memory {

// Makes sure that our handler is in place; call before the first access and whenever memory is registered, because the
// application may have installed its own meanwhile. Returns 0 or an errno value.
int install_fault_handler();

// Runs function(argument). False: it touched memory that is not there or does not allow it, and was abandoned where it
// was; it must own nothing (locks, heap) at such a point. Not to be nested.
bool run_guarded(void (*function)(void*), void* argument);

// The same for a callable.
template <class F>
bool guarded(F&& access) {
  return run_guarded([](void* f) { (*static_cast<F*>(f))(); }, &access);
}

// memcpy between application memory and ours. False: a part of it was not accessible; how much was copied is unknown.
bool copy(void* to, const void* from, size_t size);

}  // namespace uroce::memory

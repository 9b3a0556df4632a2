// Linked into a second build of the shim, whose functions the compiler instruments (-finstrument-functions): writes
// down which of them the application calls. Only what is entered from outside counts, not what the shim calls itself.
// UROCE_TRACE names the file; each function gets one line per process: its offset in the library, and the test that was
// the first to call it (UROCE_TRACE_TEST). verbs_table.py reads that.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start;

namespace {

constexpr size_t kSlots = 1 << 14;
std::atomic<uintptr_t> seen[kSlots];
thread_local int depth = 0;

bool is_new(uintptr_t function) {
  for (size_t slot = function * 0x9e3779b97f4a7c15 >> 50;; slot = (slot + 1) % kSlots) {
    uintptr_t found = seen[slot].load(std::memory_order_relaxed);
    if (found == function) return false;
    if (found == 0 && seen[slot].compare_exchange_strong(found, function)) return true;
    if (found == function) return false;
  }
}

void write_down(uintptr_t function) {
  const char* const path = getenv("UROCE_TRACE");
  const char* const test = getenv("UROCE_TRACE_TEST");
  if (path == nullptr || test == nullptr) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  dprintf(file, "call %lx %s\n", static_cast<unsigned long>(function - reinterpret_cast<uintptr_t>(&__ehdr_start)),
          test);
  close(file);
}

}  // namespace

extern "C" {

void __cyg_profile_func_enter(void* function, void*) {
  const auto address = reinterpret_cast<uintptr_t>(function);
  if (depth++ == 0 && is_new(address)) write_down(address);
}

void __cyg_profile_func_exit(void*, void*) {
  --depth;
}

}  // extern "C"

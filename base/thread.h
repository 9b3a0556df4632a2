// SPDX-License-Identifier: BSD-2-Clause
// Threads of ours in other people's processes.
#pragma once

#include <functional>
#include <thread>

namespace uroce {

// Runs `body` in a thread that has none of the rights that are there for AF_XDP only (capabilities.h) and takes no
// signals but its own faults (memory/memory_access.h): the application's signals are the application's, and a reader
// that goes away is EPIPE. `name`: at most 15 characters. Throws std::system_error and std::bad_alloc.
std::thread start_thread(const char* name, std::function<void()> body);
// The same with the rights of its caller, to open what needs them.
std::thread start_thread_with_rights(const char* name, std::function<void()> body);

// The calling thread, by the address of something of its own.
inline const void* this_thread() {
  [[gnu::tls_model("initial-exec")]] static thread_local char own;
  return &own;
}

}  // namespace uroce

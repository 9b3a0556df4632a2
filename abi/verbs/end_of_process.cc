// SPDX-License-Identifier: BSD-2-Clause
// For liburoce_files.so, which knows when a process ends without exit handlers or becomes another program.
#include "process/host.h"

// Called in front of _exit() and its like (`exec` 0), and of the exec family (not 0).
extern "C" void uroce_before_end(int exec) {
  using uroce::engine::Host;
  Host::before_end(exec != 0 ? Host::End::kExec : Host::End::kExit);
}

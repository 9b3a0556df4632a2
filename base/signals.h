// SPDX-License-Identifier: BSD-2-Clause
// What the application wants of system calls that its signal handlers interrupt.
#pragma once

namespace uroce {

// All handlers are installed with SA_RESTART, so that read() goes on after each of them. poll() does not go on whatever
// they are installed with, and who waits in poll() for an application that has called something like read() does so
// itself. Those for faults of a program (SIGSEGV and the like) do not interrupt. Costs 60 system calls.
bool calls_go_on_after_signals();

}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// The application's own faults: they stay its own, whatever the library does with SIGSEGV and SIGBUS. Used by main.cc.
#pragma once

namespace uroce::memory_faults {

// Installs a handler for both signals, as crash reporters and garbage collectors do: it knows its faults, and hands all
// others to whoever was there before.
void install_application_handler();

// A fault that the handler knows reaches it once, with the right address.
void expect_own_fault_handled();

// A fault that nobody knows kills the process (a child here) with SIGSEGV, after the handler, if there is one, has seen
// it once.
void expect_unknown_fault_kills(bool handler_installed);

// Faults that were not the application's own but came to its handler.
void expect_no_foreign_faults();

}  // namespace uroce::memory_faults

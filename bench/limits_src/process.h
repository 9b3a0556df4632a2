// SPDX-License-Identifier: BSD-2-Clause
// What measuring processes need: to run on one CPU, to say that they are ready, and to end on SIGTERM.
#pragma once

namespace uroce::limits {

void pin_to_cpu(int cpu);  // throws std::system_error
void stop_on_signals();    // SIGINT and SIGTERM make stop_requested() true and interrupt blocking calls
bool stop_requested();
void announce_ready();  // one line on stdout: bench/limits starts the peer when it reads it

}  // namespace uroce::limits

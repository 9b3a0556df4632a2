// SPDX-License-Identifier: BSD-2-Clause
// Whether a thread may spin for a moment without taking a CPU from anybody.
#pragma once

#include <optional>
#include <string_view>

#include "base/time.h"

namespace uroce {

// No more threads of the machine want to run than there are CPUs that this process may use, and its CPU time is not
// limited (cgroup, cpu.max). The caller is one of these threads. Any thread; looks every 5 ms, in between it is what
// was found last. False where /proc does not tell.
bool has_spare_cpu(Time now);

// --- for tests
// Of a line of /proc/loadavg (proc(5)): the threads that run or want to.
std::optional<unsigned> runnable_threads(std::string_view loadavg);
// Of cpu.max of a cgroup (version 2): there is a quota.
bool is_limited(std::string_view cpu_max);

}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// Descriptors that stand beside one of the application's, for each of its objects.
#pragma once

#include <cstddef>

#include "base/unique_fd.h"

namespace uroce {

// Moves a descriptor that is close-on-exec behind the soft limit of RLIMIT_NOFILE, so that it takes no place that the
// limit leaves to the application: an object then costs it as many as the kernel's does. Stays where it is if the hard
// limit leaves no room there, or the soft one is `enough`: nobody misses a place, and the kernel's table, which has one
// for each number below the highest, would become large.
//
// For that the soft limit is raised for a moment, which other threads may see.
UniqueFd set_aside(UniqueFd fd, size_t enough = 1 << 16);

}  // namespace uroce

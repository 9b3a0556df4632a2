// SPDX-License-Identifier: BSD-2-Clause
// What a process that was forked keeps open.
#pragma once

#include <span>

namespace uroce {

// Closes all but these (in any order; -1: none) and the first three. Allocates no memory. Linux 5.9.
void close_all_but(std::span<int> kept);

}  // namespace uroce

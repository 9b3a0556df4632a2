// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstddef>

namespace uroce::broker {

// As many descriptors as the process may have, and how many those are. For a program's main function: whoever it starts
// has the limit as well, and programs that use select() may not have more than 1024.
size_t raise_file_limit();

}  // namespace uroce::broker

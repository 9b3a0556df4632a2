// SPDX-License-Identifier: BSD-2-Clause
// Where the modules are that liburoce.so loads when they are asked for: in the directory in which it lies itself.
#pragma once

#include <string>

namespace uroce::io {

// For dlopen().
std::string module_path(const char* name);

}  // namespace uroce::io

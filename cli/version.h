// SPDX-License-Identifier: BSD-2-Clause
// What `uroce --version` says. Used by main.cc.
#pragma once

#include <string>

namespace uroce::cli {

// "uroce 0.1.0 (c1a0680a7b12)": with the commit when it was built from a repository, "-dirty" when that had changes.
std::string version_line();

}  // namespace uroce::cli

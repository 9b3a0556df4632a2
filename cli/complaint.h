// SPDX-License-Identifier: BSD-2-Clause
// What goes wrong is said on stderr, in one line that says who says so.
#pragma once

#include <cstdio>
#include <fmt/format.h>
#include <string_view>

namespace uroce::cli {

// Returns `exit_code`.
inline int complain(int exit_code, std::string_view line) {
  fmt::print(stderr, "uroce: {}\n", line);
  return exit_code;
}

}  // namespace uroce::cli

// SPDX-License-Identifier: BSD-2-Clause
// printf into a string: the numbers in the oracle's findings.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace uroce::oracle {

// Up to 255 characters.
[[gnu::format(printf, 1, 2)]] inline std::string text(const char* format, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace uroce::oracle

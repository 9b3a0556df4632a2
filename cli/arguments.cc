// SPDX-License-Identifier: BSD-2-Clause
#include "cli/arguments.h"

#include <algorithm>

namespace uroce::cli {

std::vector<std::string> mark_command(std::vector<std::string> arguments,
                                      const std::vector<std::string>& options_with_value) {
  if (arguments.empty() || arguments.front() != "run") return arguments;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") break;
    if (word.rfind('-', 0) != 0) {
      arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i), "--");
      break;
    }
    if (std::find(options_with_value.begin(), options_with_value.end(), word) != options_with_value.end()) ++i;
  }
  return arguments;
}

}  // namespace uroce::cli

// SPDX-License-Identifier: BSD-2-Clause
// Marks where the program begins on the command line of `uroce run`: the program's arguments may look like options of
// uroce, and CLI11 would take them for its own. Used by main.cc.
#pragma once

#include <string>
#include <vector>

namespace uroce::cli {

// Returns `arguments` (without the program name) with a "--" in front of the command of `run`. The command is the first
// word that is neither an option nor an option's value. `options_with_value` lists the options that take the next word
// unless written --option=value. Arguments of other subcommands, or with a "--" there already, stay as they are.
std::vector<std::string> mark_command(std::vector<std::string> arguments,
                                      const std::vector<std::string>& options_with_value);

}  // namespace uroce::cli

// SPDX-License-Identifier: BSD-2-Clause
// `uroce run --user`: becomes another user who keeps just the rights that AF_XDP takes. Called by run(), as root.
#pragma once

#include <optional>
#include <string>

namespace uroce::cli {

// What is wrong with the name, or with the rights of who gives it.
std::optional<std::string> why_not_user(const std::string& name);

// This process becomes that user, with the user's groups, HOME, USER and LOGNAME, and hands what AF_XDP takes on to the
// program that it becomes (ambient capabilities). Returns the complaint; what has been given up is then gone.
std::optional<std::string> become_user(const std::string& name);

}  // namespace uroce::cli

// SPDX-License-Identifier: BSD-2-Clause
// What people should know of a device while a program runs: a line on stderr.
#pragma once

#include <string>

namespace uroce::engine {

// May wait for a terminal: not to be called with a lock that others need.
void say(const std::string& netdev, const std::string& text);
// Likewise, unless this process has said it of this netdev already: a program asks again with each QP that it creates.
void say_once(int ifindex, const std::string& netdev, const std::string& text);

}  // namespace uroce::engine

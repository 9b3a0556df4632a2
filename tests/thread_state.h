// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <fstream>
#include <string>
#include <sys/types.h>

namespace uroce::test {

// The thread of this process sleeps in a system call (proc(5): state S).
inline bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.compare(name_ends, 3, ") S") == 0;
}

}  // namespace uroce::test

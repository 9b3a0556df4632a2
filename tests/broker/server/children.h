// SPDX-License-Identifier: BSD-2-Clause
// Processes that a broker in this process has begun.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "base/concat.h"

namespace uroce::broker {

// As ps has it; X: there is no such process.
inline char state_of(pid_t process) {
  std::ifstream stat(concat("/proc/", process, "/stat"));
  std::string pid, name;
  char state = 'X';
  stat >> pid >> name >> state;
  return state;
}

// Begun by the calling thread, one after the other.
inline std::vector<pid_t> children_in_order() {
  std::ifstream list(concat("/proc/self/task/", syscall(SYS_gettid), "/children"));
  return {std::istream_iterator<pid_t>(list), std::istream_iterator<pid_t>()};
}

// Those of this process in one of these states, as ps has them. Earlier tests may have left some, which end.
inline std::set<std::string> children(const std::string& states) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    int parent = 0;
    const bool is_child = stat >> pid >> name >> state >> parent && parent == getpid();
    if (is_child && states.find(state) != std::string::npos) found.insert(pid);
  }
  return found;
}

inline bool has_more(const std::set<std::string>& now, const std::set<std::string>& before) {
  return !std::includes(before.begin(), before.end(), now.begin(), now.end());
}

}  // namespace uroce::broker

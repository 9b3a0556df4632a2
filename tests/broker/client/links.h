// SPDX-License-Identifier: BSD-2-Clause
// The threads of this process's links to brokers (broker/client/link.h).
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace uroce::broker {

inline bool links_have_ended() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::none_of(begin(tasks), end(tasks), [](const auto& task) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    return std::getline(comm, name) && name == "uroce broker";
  });
}

}  // namespace uroce::broker

// SPDX-License-Identifier: BSD-2-Clause
#include "engine/device/say.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "base/concat.h"
#include "base/fork.h"

namespace uroce::engine {

namespace {

struct Said {
  std::mutex lock;
  std::set<std::pair<int, std::string>> texts;
};

}  // namespace

void say(const std::string& netdev, const std::string& text) {
  // One write, so that lines of several processes do not mix.
  const std::string line = concat("uroce: ", netdev, ": ", text, "\n");
  std::fputs(line.c_str(), stderr);
}

void say_once(int ifindex, const std::string& netdev, const std::string& text) {
  Said& said = per_process<Said>();
  {
    const std::lock_guard guard(said.lock);
    if (!said.texts.emplace(ifindex, text).second) return;
  }
  say(netdev, text);
}

}  // namespace uroce::engine

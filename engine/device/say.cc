#include "engine/device/say.h"

#include <cstdio>

#include "engine/base/concat.h"

namespace uroce::engine {

void say(const std::string& netdev, const std::string& text) {
  // One write, so that lines of several processes do not mix.
  const std::string line = concat("uroce: ", netdev, ": ", text, "\n");
  std::fputs(line.c_str(), stderr);
}

}  // namespace uroce::engine

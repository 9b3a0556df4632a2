// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/module_path.h"

#include <cstdlib>
#include <dlfcn.h>
#include <memory>

namespace uroce::io {

// Beside liburoce.so, wherever a link leads to it from. The loader is asked to find it ($ORIGIN) only where it knows
// liburoce.so by a relative path, because that is none of a process with more rights than its caller.
std::string module_path(const char* name) {
  static const char here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) != 0 && info.dli_fname[0] == '/') {
    const std::unique_ptr<char, void (*)(void*)> path(realpath(info.dli_fname, nullptr), std::free);
    if (path) return std::string(path.get()).substr(0, std::string(path.get()).rfind('/') + 1) + name;
  }
  return std::string("$ORIGIN/") + name;
}

}  // namespace uroce::io

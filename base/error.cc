// SPDX-License-Identifier: BSD-2-Clause
#include "base/error.h"

#include <cerrno>

namespace uroce::io {

std::string remedy_for(int error, std::string remedy) {
  if (error == EMFILE)
    return "this process has too many open files: ulimit -n shows how many it may have, and raises it";
  if (error == ENFILE) return "the host has too many open files: sysctl fs.file-max";
  return remedy;
}

}  // namespace uroce::io

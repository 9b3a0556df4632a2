// SPDX-License-Identifier: BSD-2-Clause
#include "cli/version.h"

#include "uroce_commit.h"  // UROCE_COMMIT; made at each build (commit.cmake)

namespace uroce::cli {

std::string version_line() {
  const std::string commit = UROCE_COMMIT;
  return "uroce " UROCE_VERSION + (commit.empty() ? "" : " (" + commit + ")");
}

}  // namespace uroce::cli

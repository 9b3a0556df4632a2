// SPDX-License-Identifier: BSD-2-Clause
#include "broker/file_limit.h"

#include <sys/resource.h>

namespace uroce::broker {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace uroce::broker

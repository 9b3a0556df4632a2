// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/file_limit.h"

#include <sys/resource.h>

namespace uroce::broker {

size_t raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max;
}

}  // namespace uroce::broker

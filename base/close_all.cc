// SPDX-License-Identifier: BSD-2-Clause
#include "base/close_all.h"

#include <algorithm>
#include <sys/syscall.h>
#include <unistd.h>

namespace uroce {

void close_all_but(std::span<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned next = 3;
  for (const int fd : kept) {
    if (fd < 0) continue;
    const auto number = static_cast<unsigned>(fd);
    if (number > next) syscall(SYS_close_range, next, number - 1, 0);
    next = std::max(next, number + 1);
  }
  syscall(SYS_close_range, next, ~0u, 0);
}

}  // namespace uroce

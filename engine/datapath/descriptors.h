// SPDX-License-Identifier: BSD-2-Clause
// What threads that sleep on descriptors have in common. For progress.cc and waiting.cc.
#pragma once

#include <cstdint>
#include <ctime>
#include <unistd.h>

#include "base/time.h"

namespace uroce::engine {

inline void add_to(int eventfd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(eventfd, &one, sizeof(one));
}

// False: there was nothing in it.
inline bool take_from(int eventfd) {
  uint64_t count;
  return read(eventfd, &count, sizeof(count)) == static_cast<ssize_t>(sizeof(count));
}

inline timespec as_timespec(Duration time) {
  return {time.count() / 1'000'000'000, time.count() % 1'000'000'000};
}

}  // namespace uroce::engine

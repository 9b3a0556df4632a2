// SPDX-License-Identifier: BSD-2-Clause
// The one clock of the engine. Not for the transport, which is told the time.
#pragma once

#include <ctime>

#include "base/time.h"

namespace uroce {

inline Time monotonic_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Time(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec));
}

// How long this thread has had a core.
inline Duration thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace uroce

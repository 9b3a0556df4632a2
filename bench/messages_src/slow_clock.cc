// SPDX-License-Identifier: BSD-2-Clause
// Preloaded below valgrind, where a program runs some fifty times slower: so does its clock then, and no more timers
// expire per message than at full speed.
#include <cstdint>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int64_t kSlower = 50;
constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result != 0) return result;
  const int64_t slow = (now->tv_sec * kNanosecondsPerSecond + now->tv_nsec) / kSlower;
  *now = {slow / kNanosecondsPerSecond, slow % kNanosecondsPerSecond};
  return 0;
}

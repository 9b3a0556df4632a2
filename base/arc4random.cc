// SPDX-License-Identifier: BSD-2-Clause
// For libraries that have libstdc++ in them (uroce_in_foreign_processes): its std::random_device, which comes along
// though nobody here uses it, calls this function, which glibc has from 2.36 on. With one of our own they load with
// glibc 2.34 too.
#include <cstdint>
#include <sys/random.h>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) __builtin_trap();
  return value;
}

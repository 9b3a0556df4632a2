// SPDX-License-Identifier: BSD-2-Clause
#include "base/random.h"

#include <cstdlib>
#include <sys/random.h>

namespace uroce::engine {

uint32_t secure_random() {
  uint32_t value;
  // Requests of up to 256 bytes are never cut short once the pool is ready (getrandom(2)).
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}

}  // namespace uroce::engine

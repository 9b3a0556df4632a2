// SPDX-License-Identifier: BSD-2-Clause
// Random numbers from the kernel's CSPRNG, for keys, QP numbers and ranges. Set-up only.
#pragma once

#include <cstdint>

namespace uroce::engine {

uint32_t secure_random();

}  // namespace uroce::engine

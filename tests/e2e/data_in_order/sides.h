// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "tests/e2e/data_in_order/endpoint.h"

namespace uroce::data_in_order {

// Where the messages come from: writes or sends them, or has them read.
void run_source(const Settings& settings, Shared& shared);

// Where they come to, with a thread that watches them come. Returns how many had a byte that was there before one in
// front of it; stderr says of the first ones which.
uint32_t run_destination(const Settings& settings, Shared& shared);

}  // namespace uroce::data_in_order

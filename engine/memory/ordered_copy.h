// SPDX-License-Identifier: BSD-2-Clause
// Places bytes so that none is visible to another core before those in front of it. Programs poll the end of a message
// in memory instead of its completion (perftest's ib_write_lat, MPI's eager rings, NCCL's flags), as adapters place a
// message's bytes in ascending order. memcpy() does not: its vector forms store the end of a short piece before its
// beginning.
#pragma once

#include <cstddef>

namespace uroce::memory {

// As memcpy(). Whoever reads a byte of it (with acquire ordering, where the machine has another) and then those in
// front of it finds the new ones. No store is wider than 16 bytes or crosses a multiple of its width, so none is seen
// in part, and 8 bytes at a multiple of 8 are one.
void copy_in_order(void* to, const void* from, size_t size);

}  // namespace uroce::memory

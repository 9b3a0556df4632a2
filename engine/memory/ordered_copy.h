// SPDX-License-Identifier: BSD-2-Clause
// Places bytes so that none is visible to another core before those in front of it. Programs poll the end of a message
// in memory instead of its completion (perftest's ib_write_lat, MPI's eager rings, NCCL's flags), as adapters place a
// message's bytes in ascending order. memcpy() does not: its vector forms store the end of a short piece before its
// beginning.
#pragma once

#include <cstddef>

namespace uroce::memory {

// As memcpy(). Whoever reads a byte of it (with acquire ordering, where the machine has another) and then those in
// front of it finds the new ones. No store crosses a multiple of its width: 8 bytes at a multiple of 8 are one, and so
// are wider ones (up to a cache line) on the processors that there are.
void copy_in_order(void* to, const void* from, size_t size);

}  // namespace uroce::memory

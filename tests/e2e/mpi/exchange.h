// SPDX-License-Identifier: BSD-2-Clause
// mpi_exchange: what its parts share. Every part moves data whose content follows from a seed, and complains about the
// first byte that is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <vector>

namespace exchange {

struct World {
  int rank = 0;
  int size = 0;
  uint64_t seed = 1;
  size_t max_size = size_t{4} << 20;  // bytes, of the largest message
  uint64_t messages = 0;              // received and verified by this rank
  uint64_t bytes = 0;
  uint64_t hash = 0xcbf29ce484222325;  // over all that was received
};

// `size` bytes that follow from the seed and `what`.
std::vector<uint8_t> content(const World& world, uint64_t what, size_t size);
// Compares what was received; ends all ranks with a message when it is wrong. Counts it.
void verify(World& world, const char* where, const std::vector<uint8_t>& received, uint64_t what);
[[noreturn]] void fail(const World& world, const char* where, const char* why);

void exchange_messages(World& world);  // point to point, both ways at once
void exchange_collectively(World& world);
void exchange_one_sided(World& world);

}  // namespace exchange

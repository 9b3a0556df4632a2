// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: the data that is moved. It follows from the seed and from a name that no other piece of data has, so
// that both hosts know it without being told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace exchange {

// splitmix64: the same numbers on both hosts.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t end) { return next() % end; }

 private:
  uint64_t state_;
};

// What is tested; the letter is part of the name of everything that is moved by it.
enum class Part : char { kTag = 't', kStream = 's', kMessage = 'm', kPut = 'p', kGet = 'g', kAtomic = 'a' };

// `side`: 0 the server's data, 1 the client's. size < 2^32, number < 2^16; `way` tells apart what has the same size.
uint64_t name_of(Part part, unsigned way, unsigned side, size_t size, unsigned number);

std::vector<uint8_t> content(uint64_t seed, uint64_t name, size_t size);
uint64_t hash(uint64_t name, const uint8_t* data, size_t size);

// Every power of two up to `max` and its neighbours: the limits at which UCX, and uroce, change how they work.
std::vector<size_t> sizes_between(size_t min, size_t max);

struct Piece {
  size_t offset;
  size_t length;  // > 0
};
// Cuts `size` bytes into at most `most` pieces of random lengths, in random order.
std::vector<Piece> cut(Random random, size_t size, size_t most);

}  // namespace exchange

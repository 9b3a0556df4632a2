// SPDX-License-Identifier: BSD-2-Clause
// Collective operations, at a small, a middle and a large size.
#include <algorithm>

#include "exchange.h"

namespace exchange {
namespace {

void broadcast(World& world, size_t size) {
  for (int root = 0; root < world.size; ++root) {
    const uint64_t what = 0xb0000000 + static_cast<uint64_t>(root) * 16 + size;
    std::vector<uint8_t> data = world.rank == root ? content(world, what, size) : std::vector<uint8_t>(size);
    MPI_Bcast(data.data(), static_cast<int>(size), MPI_BYTE, root, MPI_COMM_WORLD);
    verify(world, "broadcast", data, what);
  }
}

uint64_t block(const char* name, int from, int to) {
  return static_cast<uint64_t>(name[0]) << 32 | static_cast<uint64_t>(from) << 16 | static_cast<uint64_t>(to);
}

void all_to_all(World& world, size_t size) {
  std::vector<uint8_t> out, in(size * static_cast<size_t>(world.size));
  for (int peer = 0; peer < world.size; ++peer) {
    const auto piece = content(world, block("alltoall", world.rank, peer), size);
    out.insert(out.end(), piece.begin(), piece.end());
  }
  const int count = static_cast<int>(size);
  MPI_Alltoall(out.data(), count, MPI_BYTE, in.data(), count, MPI_BYTE, MPI_COMM_WORLD);
  for (int peer = 0; peer < world.size; ++peer) {
    const auto at = in.begin() + static_cast<std::ptrdiff_t>(size) * peer;
    verify(world, "all to all", {at, at + count}, block("alltoall", peer, world.rank));
  }
}

void all_gather(World& world, size_t size) {
  const auto own = content(world, block("gather", world.rank, 0), size);
  std::vector<uint8_t> in(size * static_cast<size_t>(world.size));
  const int count = static_cast<int>(size);
  MPI_Allgather(own.data(), count, MPI_BYTE, in.data(), count, MPI_BYTE, MPI_COMM_WORLD);
  for (int peer = 0; peer < world.size; ++peer) {
    const auto at = in.begin() + static_cast<std::ptrdiff_t>(size) * peer;
    verify(world, "all gather", {at, at + count}, block("gather", peer, 0));
  }
}

uint64_t term(int rank, size_t i) {
  return (static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15 * (i + 1);
}

void reduce(World& world, size_t size) {
  const size_t count = size / sizeof(uint64_t) + 1;
  std::vector<uint64_t> values(count), sums(count);
  for (size_t i = 0; i < count; ++i) values[i] = term(world.rank, i);
  MPI_Allreduce(values.data(), sums.data(), static_cast<int>(count), MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (size_t i = 0; i < count; ++i) {
    uint64_t expected = 0;
    for (int rank = 0; rank < world.size; ++rank) expected += term(rank, i);
    if (sums[i] != expected) fail(world, "all reduce", "a sum is wrong");
  }
  ++world.messages;
  world.bytes += count * sizeof(uint64_t);
}

}  // namespace

void exchange_collectively(World& world) {
  for (const size_t size : {size_t{1}, size_t{5'000}, std::min<size_t>(300'001, world.max_size)}) {
    broadcast(world, size);
    all_to_all(world, size);
    all_gather(world, size);
    reduce(world, size);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

}  // namespace exchange

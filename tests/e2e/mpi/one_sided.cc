// SPDX-License-Identifier: BSD-2-Clause
// One-sided operations: put, get, and atomics on a counter that all ranks share.
#include <algorithm>

#include "exchange.h"

namespace exchange {
namespace {

constexpr int kIncrements = 200;

void put_and_get(World& world, size_t size) {
  const int next = (world.rank + 1) % world.size, last = (world.rank + world.size - 1) % world.size;
  const int count = static_cast<int>(size);
  uint8_t* memory = nullptr;
  MPI_Win window;
  MPI_Win_allocate(count, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  const auto out = content(world, 0x90700000 + static_cast<uint64_t>(world.rank), size);
  MPI_Win_fence(0, window);
  MPI_Put(out.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  verify(world, "put", {memory, memory + size}, 0x90700000 + static_cast<uint64_t>(last));
  std::vector<uint8_t> in(size);
  MPI_Get(in.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  verify(world, "get", in, 0x90700000 + static_cast<uint64_t>(world.rank));
  MPI_Win_free(&window);
}

// Every rank adds at rank 0, and sees every value that it took part in once: no increment is lost or done twice.
void count_together(World& world) {
  uint64_t* counter = nullptr;
  MPI_Win window;
  MPI_Win_allocate(world.rank == 0 ? 2 * sizeof(uint64_t) : 0, sizeof(uint64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &counter, &window);
  if (world.rank == 0) counter[0] = counter[1] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  std::vector<uint64_t> seen(kIncrements);
  const uint64_t one = 1;
  for (uint64_t& value : seen) {
    MPI_Fetch_and_op(&one, &value, MPI_UINT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
  }
  // A lock made of compare-and-swap, around a value that is read and written.
  for (int i = 0; i < 10; ++i) {
    uint64_t before = 0;
    do {
      uint64_t expected = before, wanted = before + 1;
      MPI_Compare_and_swap(&wanted, &expected, &before, MPI_UINT64_T, 0, 1, window);
      MPI_Win_flush(0, window);
      if (before == expected) break;
    } while (true);
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);

  std::vector<uint64_t> all(static_cast<size_t>(world.size) * kIncrements);
  MPI_Allgather(seen.data(), kIncrements, MPI_UINT64_T, all.data(), kIncrements, MPI_UINT64_T, MPI_COMM_WORLD);
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != i) fail(world, "fetch and add", "an increment was lost or done twice");
  }
  if (world.rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    if (counter[0] != all.size()) fail(world, "fetch and add", "the counter is wrong");
    if (counter[1] != 10u * static_cast<unsigned>(world.size)) fail(world, "compare and swap", "the counter is wrong");
    MPI_Win_unlock(0, window);
  }
  MPI_Win_free(&window);
  world.messages += kIncrements;
  world.bytes += kIncrements * sizeof(uint64_t);
}

}  // namespace

void exchange_one_sided(World& world) {
  for (const size_t size : {size_t{1}, size_t{4'097}, std::min<size_t>(200'003, world.max_size)})
    put_and_get(world, size);
  count_together(world);
}

}  // namespace exchange

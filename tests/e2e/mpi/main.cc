// SPDX-License-Identifier: BSD-2-Clause
// mpi_exchange: random data of all sizes between all ranks, point to point both ways at once, in collectives and
// one-sided; every byte is verified where it arrives. Run by applications.py on two hosts.
//
// Usage: mpirun ... mpi_exchange [SEED [MAX_SIZE]]
// Prints one line on success; any mismatch ends all ranks with exit code 1.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exchange.h"

namespace exchange {

std::vector<uint8_t> content(const World& world, uint64_t what, size_t size) {
  std::vector<uint8_t> bytes((size + 7) / 8 * 8);
  uint64_t state = world.seed * 0x9e3779b97f4a7c15 + what;
  for (size_t at = 0; at < bytes.size(); at += 8) {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    std::memcpy(&bytes[at], &z, 8);
  }
  bytes.resize(size);
  return bytes;
}

void fail(const World& world, const char* where, const char* why) {
  std::fprintf(stderr, "mpi_exchange: rank %d: %s: %s\n", world.rank, where, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void verify(World& world, const char* where, const std::vector<uint8_t>& received, uint64_t what) {
  const std::vector<uint8_t> expected = content(world, what, received.size());
  for (size_t i = 0; i < received.size(); ++i) {
    world.hash = (world.hash ^ received[i]) * 0x100000001b3;  // FNV-1a
    if (received[i] == expected[i]) continue;
    char why[128];
    std::snprintf(why, sizeof(why), "byte %zu of %zu is %02x instead of %02x (message %#" PRIx64 ")", i,
                  received.size(), received[i], expected[i], what);
    fail(world, where, why);
  }
  ++world.messages;
  world.bytes += received.size();
}

}  // namespace exchange

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  exchange::World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  if (argc > 1) world.seed = std::strtoull(argv[1], nullptr, 0);
  if (argc > 2) world.max_size = std::strtoull(argv[2], nullptr, 0);
  if (world.size < 2) exchange::fail(world, "start", "needs two ranks at least");

  exchange::exchange_messages(world);
  exchange::exchange_collectively(world);
  exchange::exchange_one_sided(world);

  uint64_t sums[2] = {world.messages, world.bytes};
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  uint64_t hash = 0;
  MPI_Reduce(&world.hash, &hash, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
  if (world.rank == 0) {
    std::printf("mpi_exchange: %d ranks, %" PRIu64 " messages, %" PRIu64 " bytes, hash %016" PRIx64 "\n", world.size,
                sums[0], sums[1], hash);
  }
  MPI_Finalize();
  return 0;
}

// SPDX-License-Identifier: BSD-2-Clause
// Point to point: every size around the limits at which MPI libraries change their protocol, many at once, both ways,
// also when the receiver is late or asks in another order, and with a datatype that has gaps.
#include <algorithm>

#include "exchange.h"

namespace exchange {
namespace {

constexpr int kDepth = 8;  // messages under way to one peer

uint64_t name_of(int from, int to, size_t size, int number) {
  return static_cast<uint64_t>(from) << 56 | static_cast<uint64_t>(to) << 48 | static_cast<uint64_t>(number) << 40 |
         size;
}

std::vector<size_t> sizes_up_to(size_t max) {
  std::vector<size_t> sizes = {0};
  for (size_t power = 1; power <= max; power *= 2) {
    for (const size_t size : {power - 1, power, power + 1}) {
      if (size > sizes.back() && size <= max) sizes.push_back(size);
    }
  }
  return sizes;
}

// All ranks with all others, `kDepth` messages each way at once.
void exchange_size(World& world, size_t size, bool late) {
  const int depth = size > (1 << 18) ? 2 : kDepth;
  std::vector<std::vector<uint8_t>> sent, received;
  std::vector<MPI_Request> requests;
  const auto slots = static_cast<size_t>(world.size * depth);
  sent.resize(slots);
  received.resize(slots);
  const auto post_receives = [&] {
    for (int number = depth - 1; number >= 0; --number) {  // against the order in which they come
      for (int peer = 0; peer < world.size; ++peer) {
        if (peer == world.rank) continue;
        auto& buffer = received[static_cast<size_t>(peer * depth + number)];
        buffer.resize(size);
        MPI_Irecv(buffer.data(), static_cast<int>(size), MPI_BYTE, peer, number, MPI_COMM_WORLD,
                  &requests.emplace_back());
      }
    }
  };
  if (!late) post_receives();
  for (int number = 0; number < depth; ++number) {
    for (int peer = 0; peer < world.size; ++peer) {
      if (peer == world.rank) continue;
      auto& buffer = sent[static_cast<size_t>(peer * depth + number)];
      buffer = content(world, name_of(world.rank, peer, size, number), size);
      MPI_Isend(buffer.data(), static_cast<int>(size), MPI_BYTE, peer, number, MPI_COMM_WORLD,
                &requests.emplace_back());
    }
  }
  if (late) {
    // Everything that can has arrived unexpectedly by now: the barrier's messages came behind it.
    MPI_Barrier(MPI_COMM_WORLD);
    post_receives();
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  for (int peer = 0; peer < world.size; ++peer) {
    for (int number = 0; number < depth && peer != world.rank; ++number) {
      verify(world, late ? "late receive" : "message", received[static_cast<size_t>(peer * depth + number)],
             name_of(peer, world.rank, size, number));
    }
  }
}

// Every other byte, out of a buffer and into one.
void exchange_with_gaps(World& world) {
  constexpr int kCount = 30'000;
  MPI_Datatype every_other;
  MPI_Type_vector(kCount, 1, 2, MPI_BYTE, &every_other);
  MPI_Type_commit(&every_other);
  const int to = (world.rank + 1) % world.size, from = (world.rank + world.size - 1) % world.size;
  const std::vector<uint8_t> data = content(world, 0x6a70000 + static_cast<uint64_t>(to), kCount);
  std::vector<uint8_t> out(2 * kCount), in(2 * kCount);
  for (size_t i = 0; i < kCount; ++i) out[2 * i] = data[i];
  MPI_Sendrecv(out.data(), 1, every_other, to, 99, in.data(), 1, every_other, from, 99, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Type_free(&every_other);
  std::vector<uint8_t> taken(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    taken[i] = in[2 * i];
    if (in[2 * i + 1] != 0) fail(world, "datatype with gaps", "a gap was written to");
  }
  verify(world, "datatype with gaps", taken, 0x6a70000 + static_cast<uint64_t>(world.rank));
}

}  // namespace

void exchange_messages(World& world) {
  for (const size_t size : sizes_up_to(world.max_size)) {
    exchange_size(world, size, false);
    if (size <= 100'000) exchange_size(world, size, true);
  }
  exchange_with_gaps(world);
}

}  // namespace exchange

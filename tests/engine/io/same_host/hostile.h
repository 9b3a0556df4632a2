// SPDX-License-Identifier: BSD-2-Clause
// A side of a pair of peers that a test plays itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/io/same_host/peer.h"

namespace uroce::io::test {

struct Hostile {
  explicit Hostile(PeerEnd its_end) : end(std::move(its_end)), theirs(PeerMemory::for_reading(end.memory.get())) {}

  PeerWords& words() { return end.own->words(); }
  RingWriter writer() { return {words(), theirs->words(), end.own->ring()}; }
  // In front of the record behind the first one, which has `size` bytes.
  void set_next_length(size_t size, uint32_t length) {
    std::memcpy(end.own->ring() + (size + sizeof(length) + 15) / 16 * 16, &length, sizeof(length));
  }

  PeerEnd end;
  std::unique_ptr<const PeerMemory> theirs;
};

}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// A side of a pair of peers that a test plays itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <utility>

#include "engine/io/same_host/peer.h"

namespace uroce::io::test {

struct Hostile {
  explicit Hostile(PeerEnd its_end) : end(std::move(its_end)) {
    bytes = static_cast<uint8_t*>(
        mmap(nullptr, 4096 + 2 * kRingSize, PROT_READ | PROT_WRITE, MAP_SHARED, end.memory.get(), 0));
  }
  ~Hostile() { munmap(bytes, 4096 + 2 * kRingSize); }
  // Of the ring that this side writes to.
  RingControl& control() { return reinterpret_cast<RingControl*>(bytes)[end.side]; }
  // Of the one that it reads from.
  RingControl& control_of_read() { return reinterpret_cast<RingControl*>(bytes)[1 - end.side]; }
  uint8_t* ring() { return bytes + 4096 + end.side * kRingSize; }
  // In front of the record behind the first one, which has `size` bytes.
  void set_next_length(size_t size, uint32_t length) {
    std::memcpy(ring() + (size + sizeof(length) + 15) / 16 * 16, &length, sizeof(length));
  }

  PeerEnd end;
  uint8_t* bytes;
};

}  // namespace uroce::io::test

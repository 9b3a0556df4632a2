// SPDX-License-Identifier: BSD-2-Clause
// What both sides of a pair of peers write, which a test may write anything to.
#pragma once

#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/unique_fd.h"
#include "engine/io/same_host/ring.h"

namespace uroce::io::test {

// One ring of such memory, mapped as peers do.
class HostileMemory {
 public:
  HostileMemory() : memory_(memfd_create("ring", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(memory_.get(), kRingSize), 0);
    map();
  }
  ~HostileMemory() { munmap(bytes_, 2 * kRingSize); }
  HostileMemory(const HostileMemory&) = delete;
  HostileMemory& operator=(const HostileMemory&) = delete;

  PeerWords& writers() { return writers_; }
  PeerWords& readers() { return readers_; }
  uint8_t* bytes() { return bytes_; }
  void set_length(size_t at, uint32_t length) { std::memcpy(bytes_ + at, &length, sizeof(length)); }

 private:
  void map() {
    void* const room = mmap(nullptr, 2 * kRingSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bytes_ = static_cast<uint8_t*>(room);
    for (uint8_t* const at : {bytes_, bytes_ + kRingSize}) {
      EXPECT_EQ(mmap(at, kRingSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_.get(), 0), at);
    }
  }

  const UniqueFd memory_;
  PeerWords writers_{}, readers_{};
  uint8_t* bytes_ = nullptr;
};

}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// Whether the kernel can be made to move the pages of a file in memory together, whoever waits for them meanwhile
// (base/page_hold.h).
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace uroce::test {

class MovedTogether {
 public:
  MovedTogether() {
    void* const room = mmap(nullptr, 2 * kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(room, MAP_FAILED);
    room_ = static_cast<uint8_t*>(room);
  }
  ~MovedTogether() { munmap(room_, 2 * kLarge); }
  MovedTogether(const MovedTogether&) = delete;
  MovedTogether& operator=(const MovedTogether&) = delete;

  // They are now. False: something keeps them where they are.
  bool are(int file) const {
    constexpr int kMadvCollapse = 25;  // <sys/mman.h> of glibc 2.36 has none
    const uintptr_t address = (reinterpret_cast<uintptr_t>(room_) + kLarge - 1) & ~(kLarge - 1);
    void* const place = reinterpret_cast<void*>(address);
    EXPECT_NE(mmap(place, kLarge, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0), MAP_FAILED);
    for (int i = 0; i < kTimes; ++i) {
      if (madvise(place, kLarge, kMadvCollapse) == 0) return true;
      if (errno != EAGAIN) break;
    }
    return false;
  }
  // This kernel does it: since Linux 6.1, and where shmem_enabled is not "deny".
  static bool possible() {
    const UniqueFd file(memfd_create("to be moved", MFD_CLOEXEC));
    const uint8_t byte = 1;
    return ftruncate(file.get(), 65536) == 0 && pwrite(file.get(), &byte, 1, 0) == 1 && MovedTogether().are(file.get());
  }

 private:
  static constexpr uintptr_t kLarge = uintptr_t{2} << 20;
  static constexpr int kTimes = 20;  // what only happens to be in use is let go
  uint8_t* room_ = nullptr;
};

}  // namespace uroce::test

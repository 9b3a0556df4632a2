// SPDX-License-Identifier: BSD-2-Clause
// What both sides know of every message: its size, where in its slot it goes, its bytes, and which of them is watched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::data_in_order {

enum class Operation : uint8_t { kWrite, kSend, kRead };

// Messages take turns in so many slots of memory, on either side.
constexpr uint32_t kSlots = 16;
constexpr size_t kLargest = size_t{64} << 10, kLine = 64;
constexpr size_t kSlotSize = kLargest + 4 * kLine;  // a line in front, one for the alignment, one behind

struct Message {
  uint32_t number, size, offset;  // in its slot
  uint32_t watched;               // byte of the message
  uint8_t value;                  // of each byte; not 0, and not that of the message before it in its slot

  uint32_t slot() const { return number % kSlots; }
};

class Plan {
 public:
  explicit Plan(uint32_t seed) : seed_(seed) {}

  Message message(uint32_t number) const {
    constexpr std::array<uint32_t, 24> kSizes = {8,    12,   16,   24,   40,    64,    100,   128,
                                                 200,  256,  500,  512,  1000,  1024,  1500,  2048,
                                                 3000, 4096, 6000, 8192, 12345, 16384, 32768, 65536};
    const uint64_t random = mixed(uint64_t{seed_} << 32 | number);
    Message m{};
    m.number = number;
    m.size = kSizes[random % kSizes.size()];
    m.offset = static_cast<uint32_t>(kLine + (random >> 8) % kLine);
    // Most programs watch the last one. The others say more of what is within.
    m.watched = (random >> 16) % 3 != 0 ? m.size - 1 : static_cast<uint32_t>((random >> 24) % m.size);
    m.value = static_cast<uint8_t>(1 + number % 255);
    return m;
  }

 private:
  static uint64_t mixed(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  const uint32_t seed_;
};

}  // namespace uroce::data_in_order

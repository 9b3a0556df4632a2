// SPDX-License-Identifier: BSD-2-Clause
// The ports of a port space that somebody has. What is asked of it costs the same however many these are. Part of
// PortSpaces.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace uroce::cm {

// Where ports are chosen for those who do not care (ip_local_port_range). first <= last.
struct PortRange {
  uint16_t first = 32768;
  uint16_t last = 60999;

  uint32_t size() const { return uint32_t{last} - first + 1; }
  bool has(uint16_t port) const { return port >= first && port <= last; }
};

class PortSet {
 public:
  void add(uint16_t port) { words_[port / kBits] |= bit(port); }
  void remove(uint16_t port) { words_[port / kBits] &= ~bit(port); }

  uint32_t count(const PortRange& range) const {
    uint32_t ports = 0;
    for (uint32_t at = range.first; at <= range.last; at = next(at)) {
      ports += static_cast<uint32_t>(std::popcount(words_[at / kBits] & within(at, range)));
    }
    return ports;
  }

  // The one that has `before` others below it that are in the range and in nobody's hands. There is one.
  uint16_t free_one(const PortRange& range, uint32_t before) const {
    uint32_t at = range.first;
    uint64_t free = ~words_[at / kBits] & within(at, range);
    for (; before >= static_cast<uint32_t>(std::popcount(free)); free = ~words_[at / kBits] & within(at, range)) {
      before -= static_cast<uint32_t>(std::popcount(free));
      at = next(at);
    }
    for (; before > 0; --before) free &= free - 1;
    return static_cast<uint16_t>(at / kBits * kBits + static_cast<uint32_t>(std::countr_zero(free)));
  }

 private:
  static constexpr uint32_t kBits = 64;
  static uint64_t bit(uint16_t port) { return uint64_t{1} << port % kBits; }
  static uint32_t next(uint32_t at) { return (at / kBits + 1) * kBits; }
  // The bits of the word of `at` that are of the range, from `at` on.
  static uint64_t within(uint32_t at, const PortRange& range) {
    const uint64_t from = ~uint64_t{0} << at % kBits;
    const uint32_t last = std::min<uint32_t>(range.last, next(at) - 1) % kBits;
    return from & ~uint64_t{0} >> (kBits - 1 - last);
  }

  std::array<uint64_t, 65536 / kBits> words_{1};  // port 0 is nobody's to have
};

}  // namespace uroce::cm

// SPDX-License-Identifier: BSD-2-Clause
// Random numbers from a seed, for the stress program and the soak: each thread its own stream.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::stress {

inline uint64_t scramble(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(scramble(seed)) {}
  uint64_t next() { return scramble(state_++); }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(next() % limit); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T, size_t N>
  const T& of(const T (&choices)[N]) {
    return choices[below(N)];
  }

 private:
  uint64_t state_;
};

}  // namespace uroce::stress

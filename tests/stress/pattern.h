// SPDX-License-Identifier: BSD-2-Clause
// What payload looks like: its tag in the first eight bytes, as far as they go, then a function of tag and place. So a
// byte in the wrong place, of another message or of another QP is seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/stress/random.h"

namespace uroce::stress {

inline uint64_t pattern_word(uint64_t tag, uint32_t word) {
  return word == 0 ? tag : scramble(tag + word);
}

inline void fill_pattern(uint8_t* to, uint32_t length, uint64_t tag) {
  for (uint32_t at = 0; at < length; at += 8) {
    const uint64_t word = pattern_word(tag, at / 8);
    std::memcpy(to + at, &word, std::min(8u, length - at));
  }
}

// The first wrong byte, or `length`.
inline uint32_t check_pattern(const uint8_t* data, uint32_t length, uint64_t tag) {
  for (uint32_t at = 0; at < length; at += 8) {
    const uint64_t word = pattern_word(tag, at / 8);
    if (std::memcmp(data + at, &word, std::min(8u, length - at)) != 0) return at;
  }
  return length;
}

}  // namespace uroce::stress

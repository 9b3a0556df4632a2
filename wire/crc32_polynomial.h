// SPDX-License-Identifier: BSD-2-Clause
// Arithmetic modulo the CRC-32 polynomial, in its reflected form: bit 31 - i of a value is the coefficient of x^i, so
// 0x80000000 is 1. Gives the constants of the fast CRC kernels at compile time, and lets icrc.cc solve for a hidden IP
// ID.
//
// A CRC is such arithmetic: reading one more zero bit multiplies the register by x.
#pragma once

#include <cstdint>

#include "wire/crc32.h"

namespace uroce::wire::polynomial {

inline constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t times_x(uint32_t a) {
  return a >> 1 ^ ((0 - (a & 1)) & kCrc32Polynomial);
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    product ^= (0 - (a >> 31)) & b;
    b = times_x(b);
  }
  return product;
}

// x^n
constexpr uint32_t power(uint32_t n) {
  uint32_t result = kOne;
  for (uint32_t square = times_x(kOne); n != 0; n >>= 1) {
    if (n & 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// x^-n. The polynomial is primitive: x has order 2^32 - 1.
constexpr uint32_t inverse_power(uint32_t n) {
  return power(0xffffffff - n);
}

static_assert(power(0xffffffff) == kOne);
static_assert(power(32) == kCrc32Polynomial);
static_assert(multiply(power(1000), inverse_power(1000)) == kOne);

}  // namespace uroce::wire::polynomial

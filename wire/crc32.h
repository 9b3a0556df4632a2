// SPDX-License-Identifier: BSD-2-Clause
// CRC-32 of Ethernet and zlib, the checksum under the ICRC, as functions from register state to register state:
// reflected, without the initial and final inversion (zlib's crc32() is ~crc32_update(~0, p, n)).
//
// The fastest implementation the CPU has is chosen at start-up. Called for every byte that is sent or received.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::wire {

inline constexpr uint32_t kCrc32Polynomial = 0xedb88320;  // reflected: bit 31 - i is the coefficient of x^i

// The state after n more bytes.
uint32_t crc32_update(uint32_t state, const uint8_t* p, size_t n);

// The same, and copies the bytes in the same pass. The ranges must not overlap. Any alignment. Where the source changes
// meanwhile, the state is that of the bytes that were copied, whichever these are.
uint32_t crc32_copy(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n);

// What the functions above must agree with, bit by bit from the definition. For tests and icrc_reference().
uint32_t crc32_update_reference(uint32_t state, const uint8_t* p, size_t n);

// The implementation in use: "avx512", "pclmul" or "slicing-by-8".
const char* crc32_implementation();

}  // namespace uroce::wire

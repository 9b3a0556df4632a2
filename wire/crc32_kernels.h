// SPDX-License-Identifier: BSD-2-Clause
// The implementations behind crc32.h, one by one: for the choice at start-up, for tests and for benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::wire {

struct Crc32Kernel {
  const char* name;
  bool (*supported)();  // by this CPU
  uint32_t (*update)(uint32_t state, const uint8_t* p, size_t n);
  uint32_t (*copy)(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n);
};

// All that were compiled in, the fastest first. The last one runs everywhere.
std::span<const Crc32Kernel> crc32_kernels();

#if defined(__x86_64__)
extern const Crc32Kernel kCrc32Avx512;  // VPCLMULQDQ on 512-bit registers
extern const Crc32Kernel kCrc32Avx2;    // VPCLMULQDQ on 256-bit registers: CPUs without AVX-512, such as AMD's Zen 3
extern const Crc32Kernel kCrc32Pclmul;  // PCLMULQDQ on 128-bit registers
#endif

// The state after at most 3 bytes; for the ends that a kernel cannot take.
uint32_t crc32_few_bytes(uint32_t state, const uint8_t* p, size_t n);

}  // namespace uroce::wire

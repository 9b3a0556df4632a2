// SPDX-License-Identifier: BSD-2-Clause
// The reference, the table implementation for every CPU, and the choice of the fastest.
#include "wire/crc32.h"

#include <array>
#include <cstring>

#include "wire/bytes.h"
#include "wire/crc32_kernels.h"
#include "wire/crc32_polynomial.h"

namespace uroce::wire {
namespace {

using Table = std::array<uint32_t, 256>;

// kTables[k][b]: what byte b leaves in the register when k more bytes have followed it.
constexpr std::array<Table, 8> kTables = [] {
  std::array<Table, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t state = b;
    for (Table& table : tables) {
      for (int bit = 0; bit < 8; ++bit) state = polynomial::times_x(state);
      table[b] = state;
    }
  }
  return tables;
}();

uint32_t update_byte(uint32_t state, uint8_t byte) {
  return state >> 8 ^ kTables[0][(state ^ byte) & 0xff];
}

uint32_t update_word(uint32_t state, uint64_t word) {
  word ^= state;
  state = 0;
  for (int i = 0; i < 8; ++i) state ^= kTables[7 - i][word >> 8 * i & 0xff];
  return state;
}

uint32_t update_slicing(uint32_t state, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) state = update_word(state, load_le64(p));
  for (; n != 0; ++p, --n) state = update_byte(state, *p);
  return state;
}

uint32_t copy_slicing(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n) {
  for (; n >= 8; dst += 8, src += 8, n -= 8) {
    std::array<uint8_t, 8> word;
    std::memcpy(word.data(), src, word.size());
    std::memcpy(dst, word.data(), word.size());
    state = update_word(state, load_le64(word.data()));
  }
  for (; n != 0; --n) {
    *dst = *src++;
    state = update_byte(state, *dst++);
  }
  return state;
}

constexpr Crc32Kernel kSlicing = {
    .name = "slicing-by-8", .supported = [] { return true; }, .update = update_slicing, .copy = copy_slicing};

const Crc32Kernel* fastest() {
  for (const Crc32Kernel& kernel : crc32_kernels()) {
    if (kernel.supported()) return &kernel;
  }
  return &kSlicing;
}

// Usable, if slow, also in initialisers of other files that run before this one's.
constinit const Crc32Kernel* chosen = &kSlicing;
[[maybe_unused]] const bool chosen_is_final = (chosen = fastest(), true);

}  // namespace

std::span<const Crc32Kernel> crc32_kernels() {
  static const Crc32Kernel kernels[] = {
#if defined(__x86_64__)
    kCrc32Avx512,
    kCrc32Avx2,
    kCrc32Pclmul,
#endif
    kSlicing
  };
  return kernels;
}

uint32_t crc32_few_bytes(uint32_t state, const uint8_t* p, size_t n) {
  for (size_t i = 0; i < n; ++i) state = update_byte(state, p[i]);
  return state;
}

uint32_t crc32_update(uint32_t state, const uint8_t* p, size_t n) {
  return chosen->update(state, p, n);
}

uint32_t crc32_copy(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n) {
  return chosen->copy(state, dst, src, n);
}

uint32_t crc32_update_reference(uint32_t state, const uint8_t* p, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    state ^= p[i];
    for (int bit = 0; bit < 8; ++bit) state = state & 1 ? state >> 1 ^ kCrc32Polynomial : state >> 1;
  }
  return state;
}

const char* crc32_implementation() {
  return chosen->name;
}

}  // namespace uroce::wire

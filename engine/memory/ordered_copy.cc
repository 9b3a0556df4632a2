// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/ordered_copy.h"

#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace uroce::memory {
namespace {

struct Piece {
  uint8_t* to;
  const uint8_t* from;
  size_t size;

  void step(size_t bytes) {
    to += bytes;
    from += bytes;
    size -= bytes;
  }
  // `to` is at a multiple of half a step and not of a step, and there is enough for this half.
  bool is_odd(size_t half) const { return (reinterpret_cast<uintptr_t>(to) & half) != 0 && size >= half; }
};

// One store, which none behind it overtakes: release ordering is a plain store on x86.
template <class T>
[[gnu::always_inline]] inline void store(Piece& piece) {
  T value;
  std::memcpy(&value, piece.from, sizeof(value));
  __atomic_store_n(reinterpret_cast<T*>(piece.to), value, __ATOMIC_RELEASE);
  piece.step(sizeof(value));
}

#ifdef __x86_64__

// Stores leave a core in program order (Intel SDM 3A 9.2.2), which is here also the compiler's. One that lies in a
// cache line goes into the cache at once on the processors that there are; the manuals promise that of 16 bytes at a
// multiple of 16 (3A 9.1.1). So `to` is always at a multiple of a store's width.
void keep_order() {
  asm volatile("" ::: "memory");
}

[[gnu::always_inline]] inline void store_16(Piece& piece) {
  _mm_store_si128(reinterpret_cast<__m128i*>(piece.to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(piece.from)));
  keep_order();
  piece.step(16);
}
[[gnu::always_inline, gnu::target("avx")]] inline void store_32(Piece& piece) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(piece.to),
                     _mm256_loadu_si256(reinterpret_cast<const __m256i*>(piece.from)));
  keep_order();
  piece.step(32);
}
[[gnu::always_inline, gnu::target("avx512f")]] inline void store_64(Piece& piece) {
  _mm512_store_si512(piece.to, _mm512_loadu_si512(piece.from));
  keep_order();
  piece.step(64);
}

// All of a piece that is at least 16 bytes and has `to` at a multiple of 16, but for less than 16 at its end. Returns
// how many bytes that is. (In registers: what is handed over in memory waits for stores.)
size_t wide_16(uint8_t* to, const uint8_t* from, size_t size) {
  Piece piece{to, from, size};
  while (piece.size >= 16) store_16(piece);
  return size - piece.size;
}
[[gnu::target("avx")]] size_t wide_32(uint8_t* to, const uint8_t* from, size_t size) {
  Piece piece{to, from, size};
  if (piece.is_odd(16)) store_16(piece);
  while (piece.size >= 32) store_32(piece);
  if (piece.size >= 16) store_16(piece);
  return size - piece.size;
}
[[gnu::target("avx512f")]] size_t wide_64(uint8_t* to, const uint8_t* from, size_t size) {
  Piece piece{to, from, size};
  if (piece.is_odd(16)) store_16(piece);
  if (piece.is_odd(32)) store_32(piece);
  while (piece.size >= 64) store_64(piece);
  if (piece.size >= 32) store_32(piece);
  if (piece.size >= 16) store_16(piece);
  return size - piece.size;
}

using Wide = size_t (*)(uint8_t*, const uint8_t*, size_t);
Wide choose() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return wide_64;
  return __builtin_cpu_supports("avx") ? wide_32 : wide_16;
}
const Wide wide = choose();

#else

size_t wide(uint8_t*, const uint8_t*, size_t) {
  return 0;
}

#endif

}  // namespace

void copy_in_order(void* to, const void* from, size_t size) {
  Piece piece{static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), size};
  if (piece.is_odd(1)) store<uint8_t>(piece);
  if (piece.is_odd(2)) store<uint16_t>(piece);
  if (piece.is_odd(4)) store<uint32_t>(piece);
  if (piece.is_odd(8)) store<uint64_t>(piece);
  if (piece.size >= 16) piece.step(wide(piece.to, piece.from, piece.size));
  while (piece.size >= 8) store<uint64_t>(piece);
  if (piece.size >= 4) store<uint32_t>(piece);
  if (piece.size >= 2) store<uint16_t>(piece);
  if (piece.size >= 1) store<uint8_t>(piece);
}

}  // namespace uroce::memory

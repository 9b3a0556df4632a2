// SPDX-License-Identifier: BSD-2-Clause
// CRC-32 by carry-less multiplication. The method is that of Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): a register full of message may be moved D bits towards the
// end of the message by multiplying it with x^D mod P and adding what stands there; at the end one register is left to
// reduce.
//
// A register holds a piece of message with the first bit, the highest coefficient, in its bit 0. In this reflected form
// the product of two 64-bit halves comes out one bit too low, that is multiplied by x; constants make up for it.
#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstring>
#include <immintrin.h>

#include "wire/crc32_kernels.h"
#include "wire/crc32_polynomial.h"

// Target attributes, not compiler options for the file: no inline function of another header may be compiled with them.
#define UROCE_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define UROCE_AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))
#define UROCE_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.1")))
#define UROCE_INLINE inline __attribute__((always_inline))

namespace uroce::wire {
namespace {

// Source and destination of a pass. Destination is used by copying passes only.
struct Cursor {
  uint8_t* dst;
  const uint8_t* src;
  size_t size;  // bytes left

  UROCE_INLINE void advance(size_t n, bool copying) {
    src += n;
    if (copying) dst += n;
    size -= n;
  }
};

// x^n as a 64-bit half with the coefficients 31..0 at its end.
constexpr uint64_t half(uint32_t n) {
  return uint64_t{polynomial::power(n)} << 32;
}

// Factors that move a register by `distance` bits: for its first half, which is 64 bits further away, and its second.
template <uint32_t distance>
constexpr std::array<uint64_t, 2> kMove = {half(distance + 64 - 1), half(distance - 1)};

template <uint32_t distance>
UROCE_PCLMUL UROCE_INLINE __m128i moved(__m128i v) {
  const __m128i factors =
      _mm_set_epi64x(static_cast<int64_t>(kMove<distance>[1]), static_cast<int64_t>(kMove<distance>[0]));
  return _mm_xor_si128(_mm_clmulepi64_si128(v, factors, 0x00), _mm_clmulepi64_si128(v, factors, 0x11));
}

template <bool copying>
UROCE_PCLMUL UROCE_INLINE __m128i take16(const Cursor& c, size_t offset) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(c.src + offset));
  if constexpr (copying) _mm_storeu_si128(reinterpret_cast<__m128i_u*>(c.dst + offset), v);
  return v;
}

constexpr uint64_t kFirstHalfTo96Bits = polynomial::power(96 - 1);

// floor(x^95 / P), bit 63 - i being the coefficient of x^i.
constexpr uint64_t kBarrettQuotient = [] {
  uint64_t quotient = 0;
  uint32_t remainder = polynomial::kOne;  // long division of x^95: bring down 95 zeros
  for (int i = 0; i < 95; ++i) {
    quotient = quotient >> 1 | uint64_t{remainder & 1} << 63;
    remainder = polynomial::times_x(remainder);
  }
  return quotient;
}();

// The CRC register after the message piece in `v`: v * x^32 mod P.
UROCE_PCLMUL UROCE_INLINE uint32_t reduced(__m128i v) {
  // First half to 96 bits; the factor stands in the low bits, which lets bit k of the sum mean x^(95-k).
  const __m128i first_factor = _mm_cvtsi64_si128(static_cast<int64_t>(kFirstHalfTo96Bits));
  v = _mm_xor_si128(_mm_clmulepi64_si128(v, first_factor, 0x00), _mm_srli_si128(v, 8));
  // Barrett: the quotient by P is exact from the upper 64 bits; the remainder is the lower 32 of v + quotient * P. The
  // x^32 of P does not reach them.
  const __m128i mu = _mm_cvtsi64_si128(static_cast<int64_t>(kBarrettQuotient));
  const __m128i p = _mm_cvtsi64_si128(int64_t{kCrc32Polynomial} << 1);
  const __m128i quotient = _mm_clmulepi64_si128(v, mu, 0x00);
  v = _mm_xor_si128(v, _mm_clmulepi64_si128(quotient, p, 0x00));
  return static_cast<uint32_t>(_mm_extract_epi32(v, 2));
}

// Shuffle masks for _mm_shuffle_epi8: loaded at kShift + 16 - k the register moves k bytes towards its end, at
// kShift + 16 + k towards its front; what comes in is zero.
alignas(16) constexpr uint8_t kShift[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,  //
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,    //
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

UROCE_PCLMUL UROCE_INLINE __m128i shift_mask(ptrdiff_t towards_end) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(kShift + 16 - towards_end));
}

template <class Word>
UROCE_INLINE Word load_word(const uint8_t* p) {
  Word v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// The message of sizeof(Word) to 2 * sizeof(Word) bytes at the cursor: its first word, and what follows it, at the low
// end of `rest`. Two loads that overlap; of bytes that both have, only what the first one saw is copied and summed.
template <class Word, bool copying>
UROCE_INLINE Word take_two_words(const Cursor& c, Word& rest) {
  constexpr size_t kBits = 8 * sizeof(Word);
  const Word first = load_word<Word>(c.src);
  if constexpr (copying) std::memcpy(c.dst, &first, sizeof(first));
  rest = 0;
  if (const size_t beyond = 8 * (c.size - sizeof(Word)); beyond != 0) {
    const size_t overlap = kBits - beyond;  // bits
    rest = static_cast<Word>(load_word<Word>(c.src + c.size - sizeof(Word)) >> overlap);
    const Word last = static_cast<Word>(first >> beyond | rest << overlap);
    if constexpr (copying) std::memcpy(c.dst + c.size - sizeof(Word), &last, sizeof(last));
  }
  return first;
}

// Fewer than 16 bytes: moved to the end of a register, zeros in front, which do not change a CRC.
template <bool copying>
UROCE_PCLMUL UROCE_INLINE uint32_t run_short(uint32_t state, const Cursor& c) {
  const size_t n = c.size;
  uint64_t low, high = 0;
  if (n >= 8) {
    low = take_two_words<uint64_t, copying>(c, high) ^ state;
  } else if (n >= 4) {
    uint32_t rest;
    low = take_two_words<uint32_t, copying>(c, rest) ^ state;
    low |= uint64_t{rest} << 32;
  } else {
    if constexpr (copying) std::copy_n(c.src, n, c.dst);
    return crc32_few_bytes(state, copying ? c.dst : c.src, n);
  }
  const __m128i v = _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
  return reduced(_mm_shuffle_epi8(v, shift_mask(static_cast<ptrdiff_t>(16 - n))));
}

// All that is left, and the reduction. At least 16 bytes have gone before, the last of them in `v`.
template <bool copying>
UROCE_PCLMUL UROCE_INLINE uint32_t finish(__m128i v, Cursor c) {
  for (; c.size >= 16; c.advance(16, copying)) v = _mm_xor_si128(moved<128>(v), take16<copying>(c, 0));
  if (c.size != 0) {
    // The last 16 bytes of the message overlap with v. v's first bytes, as many as are left, move on their own.
    const ptrdiff_t left = static_cast<ptrdiff_t>(c.size);
    const __m128i front = _mm_shuffle_epi8(v, shift_mask(16 - left));
    const __m128i rest_of_v = _mm_shuffle_epi8(v, shift_mask(-left));
    const __m128i in_tail = _mm_cmplt_epi8(shift_mask(-left), _mm_setzero_si128());
    const __m128i last16 = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(c.src - (16 - left)));
    if constexpr (copying) {  // what has been copied already stays as it was summed
      auto* const to = reinterpret_cast<__m128i_u*>(c.dst - (16 - left));
      _mm_storeu_si128(to, _mm_blendv_epi8(_mm_loadu_si128(to), last16, in_tail));
    }
    const __m128i tail = _mm_and_si128(last16, in_tail);
    v = _mm_xor_si128(moved<128>(front), _mm_or_si128(rest_of_v, tail));
  }
  return reduced(v);
}

// 16 bytes or more. Four registers at a time hide the latency of the multiplication.
template <bool copying>
UROCE_PCLMUL UROCE_INLINE uint32_t run_128(uint32_t state, Cursor c) {
  const __m128i start = _mm_xor_si128(take16<copying>(c, 0), _mm_cvtsi32_si128(static_cast<int>(state)));
  if (c.size < 64) {
    c.advance(16, copying);
    return finish<copying>(start, c);
  }
  __m128i v0 = start, v1 = take16<copying>(c, 16), v2 = take16<copying>(c, 32), v3 = take16<copying>(c, 48);
  for (c.advance(64, copying); c.size >= 64; c.advance(64, copying)) {
    v0 = _mm_xor_si128(moved<512>(v0), take16<copying>(c, 0));
    v1 = _mm_xor_si128(moved<512>(v1), take16<copying>(c, 16));
    v2 = _mm_xor_si128(moved<512>(v2), take16<copying>(c, 32));
    v3 = _mm_xor_si128(moved<512>(v3), take16<copying>(c, 48));
  }
  v0 = _mm_xor_si128(moved<384>(v0), moved<256>(v1));
  v2 = _mm_xor_si128(moved<128>(v2), v3);
  return finish<copying>(_mm_xor_si128(v0, v2), c);
}

template <bool copying>
UROCE_PCLMUL uint32_t run_pclmul(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n) {
  const Cursor c{dst, src, n};
  return n < 16 ? run_short<copying>(state, c) : run_128<copying>(state, c);
}

template <bool copying>
UROCE_AVX2 UROCE_INLINE __m256i take32(const Cursor& c, size_t offset) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(c.src + offset));
  if constexpr (copying) _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(c.dst + offset), v);
  return v;
}

// v, each of its two lanes moved by `distance` bits, plus `other`.
template <uint32_t distance>
UROCE_AVX2 UROCE_INLINE __m256i moved_onto(__m256i v, __m256i other) {
  const __m256i factors = _mm256_broadcastsi128_si256(
      _mm_set_epi64x(static_cast<int64_t>(kMove<distance>[1]), static_cast<int64_t>(kMove<distance>[0])));
  const __m256i moved =
      _mm256_xor_si256(_mm256_clmulepi64_epi128(v, factors, 0x00), _mm256_clmulepi64_epi128(v, factors, 0x11));
  return _mm256_xor_si256(moved, other);
}

template <bool copying>
UROCE_AVX2 uint32_t run_avx2(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n) {
  Cursor c{dst, src, n};
  if (n < 16) return run_short<copying>(state, c);
  if (n < 32) return run_128<copying>(state, c);

  __m256i v =
      _mm256_xor_si256(take32<copying>(c, 0), _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  if (n >= 128) {
    __m256i v1 = take32<copying>(c, 32), v2 = take32<copying>(c, 64), v3 = take32<copying>(c, 96);
    for (c.advance(128, copying); c.size >= 128; c.advance(128, copying)) {
      v = moved_onto<1024>(v, take32<copying>(c, 0));
      v1 = moved_onto<1024>(v1, take32<copying>(c, 32));
      v2 = moved_onto<1024>(v2, take32<copying>(c, 64));
      v3 = moved_onto<1024>(v3, take32<copying>(c, 96));
    }
    v = moved_onto<768>(v, moved_onto<512>(v1, moved_onto<256>(v2, v3)));
  } else {
    c.advance(32, copying);
  }
  for (; c.size >= 32; c.advance(32, copying)) v = moved_onto<256>(v, take32<copying>(c, 0));
  return finish<copying>(_mm_xor_si128(moved<128>(_mm256_castsi256_si128(v)), _mm256_extracti128_si256(v, 1)), c);
}

template <bool copying>
UROCE_AVX512 UROCE_INLINE __m512i take64(const Cursor& c, size_t offset) {
  const __m512i v = _mm512_loadu_si512(c.src + offset);
  if constexpr (copying) _mm512_storeu_si512(c.dst + offset, v);
  return v;
}

UROCE_AVX512 UROCE_INLINE __m512i add3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);  // a ^ b ^ c
}

template <int index>
UROCE_AVX512 UROCE_INLINE __m128i lane(__m512i v) {
  return _mm512_maskz_extracti32x4_epi32(0xf, v, index);
}

// v, each of its four lanes moved by `distance` bits, plus `other`.
template <uint32_t distance>
UROCE_AVX512 UROCE_INLINE __m512i moved_onto(__m512i v, __m512i other) {
  // Not _mm512_broadcast_i32x4 and the like: g++ 12 warns about an uninitialised variable inside them.
  const __m512i factors = _mm512_maskz_broadcast_i32x4(
      0xffff, _mm_set_epi64x(static_cast<int64_t>(kMove<distance>[1]), static_cast<int64_t>(kMove<distance>[0])));
  return add3(_mm512_clmulepi64_epi128(v, factors, 0x00), _mm512_clmulepi64_epi128(v, factors, 0x11), other);
}

// The four lanes of v moved onto the last one. Multiplications are what limits the throughput: two for all lanes.
UROCE_AVX512 UROCE_INLINE __m128i lanes_joined(__m512i v) {
  alignas(64) static constexpr std::array<uint64_t, 2> kFactors[4] = {kMove<384>, kMove<256>, kMove<128>, {}};
  const __m512i factors = _mm512_load_si512(kFactors);
  const __m512i last_lane = _mm512_maskz_mov_epi64(0xc0, v);
  const __m512i sum =
      add3(_mm512_clmulepi64_epi128(v, factors, 0x00), _mm512_clmulepi64_epi128(v, factors, 0x11), last_lane);
  return _mm_xor_si128(_mm_xor_si128(lane<0>(sum), lane<1>(sum)), _mm_xor_si128(lane<2>(sum), lane<3>(sum)));
}

template <bool copying>
UROCE_AVX512 uint32_t run_avx512(uint32_t state, uint8_t* dst, const uint8_t* src, size_t n) {
  Cursor c{dst, src, n};
  if (n < 16) return run_short<copying>(state, c);
  if (n < 64) return run_128<copying>(state, c);

  __m512i v =
      _mm512_xor_si512(take64<copying>(c, 0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  if (n >= 256) {
    __m512i v1 = take64<copying>(c, 64), v2 = take64<copying>(c, 128), v3 = take64<copying>(c, 192);
    for (c.advance(256, copying); c.size >= 256; c.advance(256, copying)) {
      v = moved_onto<2048>(v, take64<copying>(c, 0));
      v1 = moved_onto<2048>(v1, take64<copying>(c, 64));
      v2 = moved_onto<2048>(v2, take64<copying>(c, 128));
      v3 = moved_onto<2048>(v3, take64<copying>(c, 192));
    }
    v = moved_onto<1536>(v, moved_onto<1024>(v1, moved_onto<512>(v2, v3)));
  } else {
    c.advance(64, copying);
  }
  for (; c.size >= 64; c.advance(64, copying)) v = moved_onto<512>(v, take64<copying>(c, 0));
  return finish<copying>(lanes_joined(v), c);
}

uint32_t update_pclmul(uint32_t state, const uint8_t* p, size_t n) {
  return run_pclmul<false>(state, nullptr, p, n);
}
uint32_t update_avx2(uint32_t state, const uint8_t* p, size_t n) {
  return run_avx2<false>(state, nullptr, p, n);
}
uint32_t update_avx512(uint32_t state, const uint8_t* p, size_t n) {
  return run_avx512<false>(state, nullptr, p, n);
}

bool has_pclmul() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
bool has_avx2() {
  return has_pclmul() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}
bool has_avx512() {
  return has_pclmul() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
}

}  // namespace

constexpr Crc32Kernel kCrc32Pclmul = {
    .name = "pclmul", .supported = has_pclmul, .update = update_pclmul, .copy = run_pclmul<true>};
constexpr Crc32Kernel kCrc32Avx2 = {
    .name = "avx2", .supported = has_avx2, .update = update_avx2, .copy = run_avx2<true>};
constexpr Crc32Kernel kCrc32Avx512 = {
    .name = "avx512", .supported = has_avx512, .update = update_avx512, .copy = run_avx512<true>};

}  // namespace uroce::wire

#endif

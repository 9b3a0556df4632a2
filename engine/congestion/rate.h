// SPDX-License-Identifier: BSD-2-Clause
// A rate of sending, and what it says about bytes and time. Used by everything in engine/congestion.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "base/time.h"

namespace uroce::congestion {

// a * b / c, rounded down, exact in between; UINT64_MAX if it does not fit or c is 0.
constexpr uint64_t scaled(uint64_t a, uint64_t b, uint64_t c) {
  __extension__ typedef unsigned __int128 Wide;
  if (c == 0) return UINT64_MAX;
  return static_cast<uint64_t>(std::min(Wide{a} * b / c, Wide{UINT64_MAX}));
}

class Rate {
 public:
  constexpr Rate() = default;
  static constexpr Rate bits(uint64_t per_second) { return Rate(per_second); }
  static constexpr Rate mbit(uint64_t per_second) { return Rate(per_second * 1'000'000); }
  static constexpr Rate gbit(uint64_t per_second) { return Rate(per_second * 1'000'000'000); }
  static constexpr Rate unlimited() { return Rate(UINT64_MAX); }

  // The rate at which `bytes` take `time`, which is positive; rounded down.
  static constexpr Rate of(uint64_t bytes, Duration time) {
    return Rate(scaled(bytes, kBitNanoseconds, static_cast<uint64_t>(time.count())));
  }

  constexpr uint64_t bits_per_second() const { return bits_per_second_; }

  // How long `bytes` take. Rounded up, so that whoever waits that long does not exceed the rate; Duration::max() if it
  // is longer than can be told. Nothing for an unlimited rate.
  constexpr Duration time_for(uint64_t bytes) const {
    if (*this == unlimited() || bytes == 0) return Duration{};
    const uint64_t whole = scaled(bytes, kBitNanoseconds, bits_per_second_);
    if (whole >= static_cast<uint64_t>(Duration::max().count())) return Duration::max();
    // The product wraps where `bytes` is large, and so does what it is compared with: both are taken modulo 2^64.
    const bool exact = whole * bits_per_second_ == bytes * kBitNanoseconds;
    return Duration(static_cast<int64_t>(exact ? whole : whole + 1));
  }

  constexpr auto operator<=>(const Rate&) const = default;  // NOLINT(modernize-use-nullptr): it means the 0 in "<=> 0"

 private:
  static constexpr uint64_t kBitNanoseconds = 8'000'000'000;  // bits in a byte times nanoseconds in a second

  constexpr explicit Rate(uint64_t bits_per_second) : bits_per_second_(bits_per_second) {}

  uint64_t bits_per_second_ = 0;
};

// Faster than any link: no limit.
inline constexpr Rate kHighestRate = Rate::gbit(1'000'000);

}  // namespace uroce::congestion

// SPDX-License-Identifier: BSD-2-Clause
// Messages whose fields lie anywhere among their bits, as those of the connection manager do. A message says where its
// fields are, once, in a function layout(message, codec); FieldReader and FieldWriter are the codecs that take them out
// of bytes and put them in. Set-up messages only: a loop per field.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::wire {

// `width` bits, at most 64, the first of them `bit` bits behind the most significant one of byte `byte`.
struct FieldPlace {
  size_t byte;
  unsigned bit;
  unsigned width;
};

constexpr uint64_t load_bits(const uint8_t* bytes, FieldPlace place) {
  uint64_t value = 0;
  for (size_t i = place.byte * 8 + place.bit, end = i + place.width; i < end; ++i) {
    value = value << 1 | (bytes[i / 8] >> (7 - i % 8) & 1);
  }
  return value;
}

// Sets the bits of `value` that fit, where all bits are 0 so far.
constexpr void store_bits(uint8_t* bytes, FieldPlace place, uint64_t value) {
  for (unsigned n = 0; n < place.width; ++n) {
    const size_t i = place.byte * 8 + place.bit + place.width - 1 - n;
    bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | (value >> n & 1) << (7 - i % 8));
  }
}

class FieldReader {
 public:
  explicit FieldReader(const uint8_t* bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(FieldPlace place, T& field) const {
    field = static_cast<T>(load_bits(bytes_, place));
  }
  void operator()(FieldPlace place, Qpn& field) const { field = Qpn(static_cast<uint32_t>(load_bits(bytes_, place))); }
  void operator()(FieldPlace place, Psn& field) const { field = Psn(static_cast<uint32_t>(load_bits(bytes_, place))); }
  // Whole bytes from `byte` on.
  template <size_t size>
  void operator()(size_t byte, std::array<uint8_t, size>& field) const {
    std::copy_n(bytes_ + byte, size, field.begin());
  }
  void operator()(size_t byte, IpAddress& field) const { (*this)(byte, field.bytes); }

 private:
  const uint8_t* bytes_;
};

class FieldWriter {
 public:
  // `bytes` are 0.
  explicit FieldWriter(uint8_t* bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(FieldPlace place, const T& field) const {
    store_bits(bytes_, place, static_cast<uint64_t>(field));
  }
  void operator()(FieldPlace place, const Qpn& field) const { store_bits(bytes_, place, field.value()); }
  void operator()(FieldPlace place, const Psn& field) const { store_bits(bytes_, place, field.value()); }
  template <size_t size>
  void operator()(size_t byte, const std::array<uint8_t, size>& field) const {
    std::copy_n(field.begin(), size, bytes_ + byte);
  }
  void operator()(size_t byte, const IpAddress& field) const { (*this)(byte, field.bytes); }

 private:
  uint8_t* bytes_;
};

}  // namespace uroce::wire

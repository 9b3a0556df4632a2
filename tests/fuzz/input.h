// SPDX-License-Identifier: BSD-2-Clause
// The bytes that the fuzzer hands in, as a stream of small decisions. At the end of the bytes every decision is 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }

  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  bool flag() { return byte() & 1; }
  uint16_t word() {
    const uint8_t low = byte();
    return static_cast<uint16_t>(low | byte() << 8);
  }
  uint32_t dword() {
    const uint32_t low = word();
    return low | static_cast<uint32_t>(word()) << 16;
  }
  // 0 .. limit - 1; limit at least 1.
  uint32_t below(uint32_t limit) { return (limit <= 256 ? byte() : word()) % limit; }
  template <class T, size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[below(N)];
  }
  void fill(std::span<uint8_t> out) {
    const size_t n = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), n, out.begin());
    std::fill(out.begin() + static_cast<ptrdiff_t>(n), out.end(), uint8_t{0});
    rest_ = rest_.subspan(n);
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace uroce::fuzz

// SPDX-License-Identifier: BSD-2-Clause
// Immediate data (IBTA 9.3): four opaque bytes. Verbs hands them to applications in network byte order (imm_data is
// __be32), so they are copied and never converted.
#pragma once

#include <array>
#include <bit>

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class ImmDtView : public HeaderView<ImmDtView, 4> {
 public:
  constexpr uint32_t network_value() const {
    return std::bit_cast<uint32_t>(std::array{bytes_[0], bytes_[1], bytes_[2], bytes_[3]});
  }
};

struct ImmDt {
  static constexpr size_t kSize = ImmDtView::kSize;

  uint32_t network_value = 0;  // the bytes as they are on the wire

  static constexpr ImmDt parse(const ImmDtView& view) { return {.network_value = view.network_value()}; }
  constexpr void emit(uint8_t* out) const {
    const auto bytes = std::bit_cast<std::array<uint8_t, kSize>>(network_value);
    for (size_t i = 0; i < kSize; ++i) out[i] = bytes[i];
  }

  friend constexpr bool operator==(const ImmDt&, const ImmDt&) = default;
};

}  // namespace uroce::wire

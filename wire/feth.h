// SPDX-License-Identifier: BSD-2-Clause
// The Flush Extended Transport Header: what an RDMA FLUSH makes visible or persistent (IBTA annex A19).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class FethView : public HeaderView<FethView, 4> {
 public:
  constexpr uint8_t placement_type() const { return bytes_[3] & 0x0f; }
  constexpr uint8_t selectivity() const { return bytes_[3] >> 4 & 3; }
};

struct Feth {
  static constexpr size_t kSize = FethView::kSize;
  static constexpr uint8_t kGlobalVisibility = 1, kPersistence = 2;  // bits of placement_type
  static constexpr uint8_t kRange = 0, kWholeRegion = 1;             // values of selectivity

  uint8_t placement_type = 0;
  uint8_t selectivity = 0;

  static constexpr Feth parse(const FethView& view) {
    return {.placement_type = view.placement_type(), .selectivity = view.selectivity()};
  }
  constexpr void emit(uint8_t* out) const {
    store_be32(out, static_cast<uint32_t>((selectivity & 3) << 4 | (placement_type & 0x0f)));
  }

  friend constexpr bool operator==(const Feth&, const Feth&) = default;
};

}  // namespace uroce::wire

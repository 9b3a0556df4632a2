// SPDX-License-Identifier: BSD-2-Clause
// The Invalidate Extended Transport Header: the R_Key that SEND with Invalidate ends (IBTA 9.3).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class IethView : public HeaderView<IethView, 4> {
 public:
  constexpr uint32_t rkey() const { return load_be32(bytes_); }
};

struct Ieth {
  static constexpr size_t kSize = IethView::kSize;

  uint32_t rkey = 0;

  static constexpr Ieth parse(const IethView& view) { return {.rkey = view.rkey()}; }
  constexpr void emit(uint8_t* out) const { store_be32(out, rkey); }

  friend constexpr bool operator==(const Ieth&, const Ieth&) = default;
};

}  // namespace uroce::wire

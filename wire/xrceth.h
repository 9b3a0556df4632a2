// SPDX-License-Identifier: BSD-2-Clause
// The XRC Extended Transport Header: the shared receive queue an XRC request is for (IBTA annex A14).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class XrcethView : public HeaderView<XrcethView, 4> {
 public:
  constexpr uint32_t srqn() const { return load_be24(bytes_ + 1); }
};

struct Xrceth {
  static constexpr size_t kSize = XrcethView::kSize;

  uint32_t srqn = 0;  // 24 bits

  static constexpr Xrceth parse(const XrcethView& view) { return {.srqn = view.srqn()}; }
  constexpr void emit(uint8_t* out) const { store_be32(out, srqn & 0xffffff); }

  friend constexpr bool operator==(const Xrceth&, const Xrceth&) = default;
};

}  // namespace uroce::wire

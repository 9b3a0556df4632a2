// SPDX-License-Identifier: BSD-2-Clause
// The Datagram Extended Transport Header: Q_Key and sender of a UD packet (IBTA 9.3).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"
#include "wire/psn.h"

namespace uroce::wire {

class DethView : public HeaderView<DethView, 8> {
 public:
  constexpr uint32_t qkey() const { return load_be32(bytes_); }
  constexpr Qpn source_qp() const { return Qpn(load_be24(bytes_ + 5)); }
};

struct Deth {
  static constexpr size_t kSize = DethView::kSize;

  uint32_t qkey = 0;
  Qpn source_qp{};

  static constexpr Deth parse(const DethView& view) { return {.qkey = view.qkey(), .source_qp = view.source_qp()}; }
  constexpr void emit(uint8_t* out) const {
    store_be32(out, qkey);
    store_be32(out + 4, source_qp.value());
  }

  friend constexpr bool operator==(const Deth&, const Deth&) = default;
};

}  // namespace uroce::wire

// SPDX-License-Identifier: BSD-2-Clause
// The RDMA Extended Transport Header: where an RDMA WRITE or READ goes (IBTA 9.3).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class RethView : public HeaderView<RethView, 16> {
 public:
  constexpr uint64_t va() const { return load_be64(bytes_); }
  constexpr uint32_t rkey() const { return load_be32(bytes_ + 8); }
  constexpr uint32_t length() const { return load_be32(bytes_ + 12); }
};

struct Reth {
  static constexpr size_t kSize = RethView::kSize;

  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;  // bytes of the whole message ("DMA length")

  static constexpr Reth parse(const RethView& view) {
    return {.va = view.va(), .rkey = view.rkey(), .length = view.length()};
  }
  constexpr void emit(uint8_t* out) const {
    store_be64(out, va);
    store_be32(out + 8, rkey);
    store_be32(out + 12, length);
  }

  friend constexpr bool operator==(const Reth&, const Reth&) = default;
};

}  // namespace uroce::wire

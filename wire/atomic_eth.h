// SPDX-License-Identifier: BSD-2-Clause
// The headers of atomic operations: AtomicETH in the request, AtomicAckETH in the answer (IBTA 9.3).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"

namespace uroce::wire {

class AtomicEthView : public HeaderView<AtomicEthView, 28> {
 public:
  constexpr uint64_t va() const { return load_be64(bytes_); }
  constexpr uint32_t rkey() const { return load_be32(bytes_ + 8); }
  constexpr uint64_t swap_add() const { return load_be64(bytes_ + 12); }
  constexpr uint64_t compare() const { return load_be64(bytes_ + 20); }
};

struct AtomicEth {
  static constexpr size_t kSize = AtomicEthView::kSize;

  uint64_t va = 0;
  uint32_t rkey = 0;
  uint64_t swap_add = 0;  // the value to swap in, or to add
  uint64_t compare = 0;   // CmpSwap only

  static constexpr AtomicEth parse(const AtomicEthView& view) {
    return {.va = view.va(), .rkey = view.rkey(), .swap_add = view.swap_add(), .compare = view.compare()};
  }
  constexpr void emit(uint8_t* out) const {
    store_be64(out, va);
    store_be32(out + 8, rkey);
    store_be64(out + 12, swap_add);
    store_be64(out + 20, compare);
  }

  friend constexpr bool operator==(const AtomicEth&, const AtomicEth&) = default;
};

class AtomicAckEthView : public HeaderView<AtomicAckEthView, 8> {
 public:
  constexpr uint64_t original() const { return load_be64(bytes_); }
};

struct AtomicAckEth {
  static constexpr size_t kSize = AtomicAckEthView::kSize;

  uint64_t original = 0;  // what was in memory before

  static constexpr AtomicAckEth parse(const AtomicAckEthView& view) { return {.original = view.original()}; }
  constexpr void emit(uint8_t* out) const { store_be64(out, original); }

  friend constexpr bool operator==(const AtomicAckEth&, const AtomicAckEth&) = default;
};

}  // namespace uroce::wire

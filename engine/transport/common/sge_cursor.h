// SPDX-License-Identifier: BSD-2-Clause
// A walk over the memory that a message lies in, as a scatter/gather list says it: from any byte of the message on,
// piece by piece. For payload to send, payload that arrives and data that READs and atomics return.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/memory/memory_access.h"
#include "engine/transport/common/qp_context.h"

namespace uroce::transport {

class SgeCursor {
 public:
  // From message byte `offset` on.
  SgeCursor(std::span<const queue::Sge> sges, uint32_t offset) : sges_(sges), offset_(offset) {}

  // The next bytes, at most `size`, as many as lie in one SGE. Of length 0: the list is at its end.
  queue::Sge next(uint32_t size) {
    while (!sges_.empty() && offset_ >= sges_.front().length) {
      offset_ -= sges_.front().length;
      sges_ = sges_.subspan(1);
    }
    if (sges_.empty()) return {};
    const queue::Sge& sge = sges_.front();
    const queue::Sge piece{sge.address + offset_, std::min(size, sge.length - offset_), sge.lkey};
    offset_ += piece.length;
    return piece;
  }

 private:
  std::span<const queue::Sge> sges_;
  uint32_t offset_;  // in the first of them
};

// Writes `data` to message offset `offset` of the list, whose memory is of domain `pd`. False: an SGE does not allow
// it, or the list is shorter.
inline bool scatter(const QpContext& qp, uint32_t pd, std::span<const queue::Sge> sges, uint32_t offset,
                    std::span<const uint8_t> data) {
  for (SgeCursor cursor(sges, offset); !data.empty();) {
    const queue::Sge piece = cursor.next(static_cast<uint32_t>(data.size()));
    if (piece.length == 0) return false;
    const memory::Translation t =
        qp.mrs.translate_local(piece.lkey, pd, piece.address, piece.length, memory::kLocalWrite);
    if (t.result != memory::AccessResult::kOk) return false;
    if (!memory::copy(t.address, data.data(), piece.length)) {
      qp.counters.add(Counter::kMemoryFaults);
      return false;
    }
    data = data.subspan(piece.length);
  }
  return true;
}

// The same for pieces of `size` bytes each, one behind the other, at once. False: they have to be written one by one,
// and who does that finds out why.
inline bool scatter_pieces(const QpContext& qp, uint32_t pd, std::span<const queue::Sge> sges, uint32_t offset,
                           std::span<const uint8_t* const> pieces, size_t size) {
  const auto all = static_cast<uint32_t>(pieces.size() * size);
  const queue::Sge place = SgeCursor(sges, offset).next(all);
  if (place.length < all) return false;
  const memory::Translation t = qp.mrs.translate_local(place.lkey, pd, place.address, all, memory::kLocalWrite);
  return t.result == memory::AccessResult::kOk && memory::copy_pieces(t.address, pieces, size);
}

}  // namespace uroce::transport

// SPDX-License-Identifier: BSD-2-Clause
#include "wire/segment_batch.h"

#include <algorithm>

#include "wire/bth.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

namespace uroce::wire {
namespace {

constexpr size_t kSmallestPacket = kBthSize + kIcrcSize;
constexpr int kMostPlaces = 64;  // an ICRC is computed for each: a hostile file has no more of our time

// What a batch holds is of one sender and one transport.
bool may_follow(const BthView& first, const BthView& next) {
  const OpcodeInfo& info = opcode_info(next.opcode());
  return info.known && next.tver() == 0 && next.pkey() == first.pkey() &&
         info.transport == opcode_info(first.opcode()).transport;
}

}  // namespace

std::optional<SegmentBatch> find_segment_batch(const Envelope& envelope, std::span<const uint8_t> ib) {
  if (ib.size() < 2 * kSmallestPacket) return std::nullopt;
  const BthView first = BthView::at(ib.data());
  int places = 0;
  // Packets are padded to a multiple of four bytes.
  for (size_t size = kSmallestPacket; size + kSmallestPacket <= ib.size() && places < kMostPlaces; size += 4) {
    if (!may_follow(first, BthView::at(ib.data() + size))) continue;
    // Of most packets that are alone no ICRC has to be computed.
    if (places++ == 0 && icrc_matches(envelope, ib)) return std::nullopt;
    if (!icrc_matches(envelope, ib.first(size))) continue;
    Envelope second = envelope;
    second.ip_id = static_cast<uint16_t>(envelope.ip_id + 1);
    const auto rest = ib.subspan(size, std::min(size, ib.size() - size));
    const bool counts = envelope.destination.is_v4() && (icrc_matches(second, rest) || !icrc_matches(envelope, rest));
    return SegmentBatch{size, static_cast<uint16_t>(counts ? 1 : 0)};
  }
  return std::nullopt;
}

}  // namespace uroce::wire

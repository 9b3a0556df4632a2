// SPDX-License-Identifier: BSD-2-Clause
// Memory that can be judged to the byte: payloads and guards are keyed pseudo-random streams.
//
// A GuardedMemory is divided into slots, one per message in flight. A free slot holds nothing but the guard stream. A
// message occupies pieces of its slot; all bytes around and between them must stay as they are. After a message has
// been verified its pieces get the guard stream back, so a late or repeated write shows up like any other stray one.
// Used by the requester (sources and sinks of its SGEs) and the responder (receive buffers and targets).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tests/e2e/transfer/plan.h"

namespace uroce::transfer {

// Bytes [offset, offset + out.size()) of the stream `key`.
void fill_stream(uint64_t key, uint64_t offset, std::span<uint8_t> out);
// Index of the first byte that is not that of the stream.
std::optional<size_t> first_difference(uint64_t key, uint64_t offset, std::span<const uint8_t> bytes);

struct Piece {
  size_t offset;  // in the slot
  size_t length;
};
using Pieces = std::vector<Piece>;  // ascending, not overlapping; a message is their concatenation

inline constexpr uint32_t kMaxPieces = 8;
inline constexpr size_t kMargin = 256;         // guard bytes looked at beyond the last piece
inline constexpr uint32_t kReceiveSlack = 64;  // the most by which a receive buffer exceeds its message

// Splits `size` bytes at random into at most `max_pieces` pieces at random offsets.
Pieces lay_out(Random& random, size_t size, size_t max_pieces);
// The first `size` bytes of the pieces.
Pieces head(const Pieces& pieces, size_t size);
// Bytes that every message of up to `max_size` bytes finds room in, however it is laid out.
size_t slot_size(uint32_t max_size);

class GuardedMemory {
 public:
  GuardedMemory(uint64_t slots, size_t slot_size, uint64_t guard_key);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::span<uint8_t> bytes() const { return {base_, size_}; }
  size_t slot_size() const { return slot_size_; }
  // The slot of message `number`.
  uint8_t* slot(uint64_t number) const { return base_ + slot_offset(number); }

  void fill_payload(uint64_t number, const Pieces& pieces, uint64_t key);
  void restore_guard(uint64_t number, const Pieces& pieces);
  // Offset in the message of the first byte that is not the payload `key`.
  std::optional<size_t> payload_difference(uint64_t number, const Pieces& pieces, uint64_t key) const;
  // Offset in the slot of the first damaged guard byte before, between and after the pieces.
  std::optional<size_t> guard_difference(uint64_t number, const Pieces& pieces) const;
  // The same for a slot whose message, of these pieces, is over: they are guard bytes again.
  std::optional<size_t> stale_write(uint64_t number, const Pieces& pieces) const;
  // Offset of the first damaged byte when every slot is free.
  std::optional<size_t> any_difference() const;
  // CRC-64 of the message's bytes.
  uint64_t hash(uint64_t number, const Pieces& pieces) const;

 private:
  size_t slot_offset(uint64_t number) const { return static_cast<size_t>(number % slots_) * slot_size_; }
  std::optional<size_t> guard_range(uint64_t number, size_t begin, size_t end) const;

  const uint64_t slots_;
  const size_t slot_size_;
  const size_t size_;
  const uint64_t key_;
  uint8_t* base_;
};

}  // namespace uroce::transfer

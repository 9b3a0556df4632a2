// SPDX-License-Identifier: BSD-2-Clause
// Where things lie in the memory of the two sides. Each side has a GuardedMemory of page-sized slots, most of it not
// registered: whatever is written beside its place is found. Used by client.cc, server.cc and memory.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::errors {

inline constexpr uint32_t kLong = 5000;    // bytes of a request of several packets, at any path MTU
inline constexpr uint32_t kPiece = 64;     // bytes of an ordinary request and of a receive
inline constexpr uint32_t kReceives = 4;   // posted before the request
inline constexpr uint32_t kFollowers = 3;  // requests posted behind the one that must fail
inline constexpr size_t kSlots = 6, kSlotSize = 16384;

// Slots. Number 0 and the last are guards.
enum Slot : uint8_t {
  kOpenSlot = 1,  // responder: where everything is allowed. Requester: what is sent
  kTargetSlot,    // responder: what the request that must fail is about. Requester: where answers go
  kReceiveSlot,
};

// The region of kTargetSlot. Its ends are no multiples of 8, so that an aligned atomic can straddle them.
inline constexpr size_t kRegionBegin = 68, kRegionEnd = kRegionBegin + 8192;
inline constexpr size_t kBeginsBefore = kRegionBegin - 4, kEndsBehind = kRegionEnd - 4;
constexpr size_t local_ends_behind(uint32_t length) {
  return kRegionEnd - length + kPiece / 2;
}

// Offsets in the slots; the same on both sides, so a request goes to where it comes from.
inline constexpr size_t kLeadAt = 128, kBadAt = 256;
constexpr size_t follower_at(uint32_t i) {
  return 6144 + i * 128;
}
inline constexpr size_t kHealthyAt = 7168, kHealthySize = 8;
// Number 0 has room for kLong.
constexpr size_t receive_at(uint32_t i) {
  return i == 0 ? 128 : 6144 + i * 256;
}

// Streams of verify.h: payloads, and the guards of the two sides.
enum Stream : uint64_t { kLeadStream = 1, kBadStream, kFollowerStream, kHealthyStream, kClientGuard, kServerGuard };

}  // namespace uroce::errors

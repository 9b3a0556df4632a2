// SPDX-License-Identifier: BSD-2-Clause
// Which shard of a device has a QP. A device may have several shards, each with QPs, a lock and a PacketIo of its own
// (progress.md "Shards"). Whoever spreads packets over these PacketIos does it by this rule.
#pragma once

#include <cstdint>

#include "wire/psn.h"

namespace uroce::io {

// The most that a device can have.
inline constexpr uint32_t kMaxShards = 8;

// `shards` is a power of two. What is for no QP in particular (QPN 0 and 1, groups) and all UD belong to shard 0.
constexpr uint32_t shard_of(wire::Qpn qpn, uint32_t shards) {
  return qpn.value() <= 1 || qpn == wire::kMulticastQpn ? 0 : qpn.value() & (shards - 1);
}

}  // namespace uroce::io

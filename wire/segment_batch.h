// SPDX-License-Identifier: BSD-2-Clause
// Several RoCE v2 packets behind one set of IP and UDP headers. No wire carries that; captures have it that were taken
// where a host hands over packets as segment batches (UDP_SEGMENT), or where its kernel has joined what came (UDP_GRO).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/envelope.h"

namespace uroce::wire {

struct SegmentBatch {
  size_t segment = 0;    // bytes of each packet, BTH to ICRC; the last may be shorter
  uint16_t id_step = 0;  // from the IPv4 identification of a packet to that of the next; of the first it is the batch's

  size_t packets(size_t bytes) const { return (bytes + segment - 1) / segment; }
};

// nullopt: `ib`, all that is behind the UDP header, is one packet, be its ICRC right or wrong. The ICRC of the first
// packet decides where it ends, at one of up to 64 places at which another BTH could stand; that of the second one, how
// identifications count.
std::optional<SegmentBatch> find_segment_batch(const Envelope& envelope, std::span<const uint8_t> ib);

}  // namespace uroce::wire

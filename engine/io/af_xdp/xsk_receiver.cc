// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/xsk_receiver.h"

#include <cstring>

#include "wire/ip_udp.h"

namespace uroce::io {

bool XskReceiver::gather(Source& source, const xdp_desc& descriptor, size_t slot, std::span<const uint8_t>& frame) {
  const bool last = (descriptor.options & XDP_PKT_CONTD) == 0;
  const bool taken = source.chunks.take(descriptor.addr);
  const bool counts = taken && descriptor.len <= source.chunks.room(descriptor.addr);
  if (!counts) ++counters_.ring_errors;
  assert(!counts || descriptor.addr + descriptor.len <= area_.size());
  if (counts && last && source.partial_count == 0 && !source.partial_broken) {
    source.chunks.recycle(descriptor.addr);
    frame = area_.subspan(descriptor.addr, descriptor.len);
    return true;
  }
  if (counts) source.partial_size += descriptor.len;
  if (counts && source.partial_count < Source::kMaxChunks) {
    source.partial[source.partial_count++] = descriptor;
  } else {
    source.partial_broken = true;
    if (taken) source.chunks.recycle(descriptor.addr);
  }
  if (!last) return false;
  const bool complete = assemble(source, slot, frame);
  for (size_t i = 0; i < source.partial_count; ++i) source.chunks.recycle(source.partial[i].addr);
  if (!complete) ++(source.partial_size > kMaxFrameSize ? counters_.rx_too_long : counters_.rx_malformed);
  source.partial_count = 0;
  source.partial_size = 0;
  source.partial_broken = false;
  return complete;
}

bool XskReceiver::assemble(const Source& source, size_t slot, std::span<const uint8_t>& frame) {
  if (source.partial_broken || bounce_.empty()) return false;
  if (source.partial_size > kMaxFrameSize) return false;
  assert(slot < kMaxBurst);
  uint8_t* const start = bounce_.data() + slot * kMaxFrameSize;
  uint8_t* end = start;
  for (const xdp_desc& chunk : std::span(source.partial).first(source.partial_count)) {
    std::memcpy(end, area_.data() + chunk.addr, chunk.len);
    end += chunk.len;
  }
  frame = {start, end};
  return true;
}

bool XskReceiver::parse(std::span<const uint8_t> frame, RxPacket& packet) {
  const wire::FrameError error = wire::parse_frame(frame, packet.envelope, packet.ib);
  if (error != wire::FrameError::kNone) {
    ++counters_.rx_malformed;
    if (malformed_observer_) malformed_observer_(frame, error);
    return false;
  }
  packet.renew();
  packet.frame = frame;
  counters_.rx_bytes += packet.ib.size() + wire::kUdpSize;
  return true;
}

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// What an mbuf says of the frame in it, checked before anybody reads the frame: drivers take lengths from devices, and
// net_memif from another process. Inline, so that the fuzzer has what the module has
// (tests/fuzz/dpdk_receive_fuzzer.cc).
//
// What bounds what: bytes are read only inside the buffer that the mbuf describes (buf_len). A frame has kMostSegments
// at most, of which as many are followed as the first one says, and as many bytes as all of them have together.
#pragma once

#include <algorithm>
#include <rte_mbuf.h>

#include "engine/io/dpdk/calls.h"

namespace uroce::io::dpdk {

inline constexpr uint16_t kMostSegments = 64;

inline bool lies_in_its_buffer(const rte_mbuf& mbuf) {
  return mbuf.data_off <= mbuf.buf_len && mbuf.data_len <= mbuf.buf_len - mbuf.data_off;
}

// `segments` is 0 where the mbuf contradicts itself: then there are no bytes.
inline DpdkBuffer describe(rte_mbuf* mbuf) {
  const bool stripped = (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
  DpdkBuffer buffer{.handle = mbuf,
                    .data = rte_pktmbuf_mtod(mbuf, uint8_t*),
                    .size = mbuf->data_len,
                    .total = mbuf->pkt_len,
                    .segments = mbuf->nb_segs,
                    .vlan = static_cast<uint16_t>(stripped ? mbuf->vlan_tci & 0xfff : 0),
                    .bad_checksum = (mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD};
  const bool one = mbuf->nb_segs == 1 && mbuf->pkt_len == mbuf->data_len;
  const bool several = mbuf->nb_segs > 1 && mbuf->nb_segs <= kMostSegments && mbuf->pkt_len >= mbuf->data_len;
  if (lies_in_its_buffer(*mbuf) && (one || several)) return buffer;
  buffer.size = buffer.total = buffer.segments = 0;
  return buffer;
}

// Copies a frame in several segments to `out`, which has `room` bytes. The number of bytes; 0: there is not room
// enough, or the segments contradict the first one.
inline size_t gather_segments(const DpdkBuffer& frame, uint8_t* out, size_t room) {
  size_t size = 0;
  uint16_t left = frame.segments;
  for (const rte_mbuf* mbuf = static_cast<const rte_mbuf*>(frame.handle); mbuf != nullptr; mbuf = mbuf->next) {
    if (left-- == 0 || mbuf->data_len > room - size || !lies_in_its_buffer(*mbuf)) return 0;
    std::copy_n(rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len, out + size);
    size += mbuf->data_len;
  }
  return left == 0 && size == frame.total ? size : 0;
}

}  // namespace uroce::io::dpdk

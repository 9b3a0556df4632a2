// SPDX-License-Identifier: BSD-2-Clause
// An AF_XDP queue without a kernel, for XskReceiver: the test, or the fuzzer, is the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "engine/io/af_xdp/xsk_receiver.h"

namespace uroce::io::test {

struct FakeXskQueue {
  FakeXskQueue(uint64_t first_address, uint32_t chunks, uint32_t chunk_size)
      : source{.chunks = RxChunks(first_address, chunks, chunk_size)}, xsk{.fill_size = 2 * size_t{chunks}} {
    source.chunks.publish(xsk);
  }

  XskReceiver::Source source;
  struct Rings {
    uint32_t peek_rx(uint32_t n, uint32_t& index) {
      index = released;
      return std::min(n, static_cast<uint32_t>(rx.size()));
    }
    const xdp_desc& rx_descriptor(uint32_t index) const { return rx.at(index - released); }
    void release_rx(uint32_t n) {
      rx.erase(rx.begin(), rx.begin() + n);
      released += n;
    }
    bool fill(std::span<const uint64_t> addresses) {
      if (filled.size() + addresses.size() > fill_size) return false;
      filled.insert(filled.end(), addresses.begin(), addresses.end());
      return true;
    }
    void wake_rx_if_needed() {}

    size_t fill_size;
    std::deque<uint64_t> filled{};  // the FILL ring
    std::deque<xdp_desc> rx{};      // the RX ring
    uint32_t released = 0;
  } xsk;

  // A frame arrives, in pieces of at most `piece` bytes. False: the kernel has too few chunks, and drops it.
  bool arrive(std::span<uint8_t> area, std::span<const uint8_t> frame, size_t piece, uint32_t headroom = 256) {
    const size_t pieces = std::max<size_t>(1, (frame.size() + piece - 1) / piece);
    if (xsk.filled.size() < pieces) return false;
    for (size_t i = 0; i < pieces; ++i) {
      const std::span<const uint8_t> bytes = frame.subspan(i * piece, std::min(piece, frame.size() - i * piece));
      const uint64_t address = xsk.filled.front() + headroom;
      xsk.filled.pop_front();
      std::copy(bytes.begin(), bytes.end(), area.begin() + static_cast<ptrdiff_t>(address));
      xsk.rx.push_back({address, static_cast<uint32_t>(bytes.size()), i + 1 < pieces ? uint32_t{XDP_PKT_CONTD} : 0});
    }
    return true;
  }
};

}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// The receiving half of AfXdp: packets out of the descriptors that the kernel puts into RX rings. It needs no kernel:
// tests and the fuzzer run it over rings of their own. The ring is a template parameter, so that this costs nothing.
//
// What bounds what, whatever peers send and however many queues there are:
//  - A descriptor counts only if the kernel has the chunk that it names, and if its bytes lie inside that chunk. So
//    nothing outside the area is read, and no chunk is given to the kernel that it has already: the FILL ring has room.
//  - A frame in several chunks is put together in the slot that has the number of the packet it may become. So there
//    are as many slots as packets in a burst, and a frame that is no packet leaves its slot to the next one.
//  - A frame under construction holds kMaxChunks chunks at most; one that needs more is dropped and counted. In generic
//    mode that may be a run that nobody has cut (reference/af-xdp.md "Frame sizes").
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <linux/if_xdp.h>
#include <span>
#include <utility>
#include <vector>

#include "engine/io/packet_io.h"

// From kernel 6.6, missing in older headers.
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

namespace uroce::io {

// The chunks of one queue, and who has each of them: the kernel (in the FILL ring, or being filled) or we.
class RxChunks {
 public:
  RxChunks() = default;
  // All are ours, to be given to the kernel. `chunk_size` is a power of two.
  RxChunks(uint64_t first_address, uint32_t count, uint32_t chunk_size)
      : first_address_(first_address), shift_(std::countr_zero(chunk_size)), with_kernel_(count, false) {
    assert(std::has_single_bit(chunk_size) && first_address % chunk_size == 0);
    recycled_.reserve(count);
    for (uint32_t i = 0; i < count; ++i) recycle(first_address + (uint64_t{i} << shift_));
  }

  // The chunk around `address` is ours from now on. False: the kernel does not have it.
  bool take(uint64_t address) {
    const uint64_t chunk = index(address);
    if (chunk >= with_kernel_.size() || !with_kernel_[chunk]) return false;
    with_kernel_[chunk] = false;
    return true;
  }
  // The chunk around `address`, which is ours, is the kernel's from the next publish() on.
  void recycle(uint64_t address) { recycled_.push_back(first_address_ + (index(address) << shift_)); }
  template <class Ring>
  void publish(Ring& ring) {
    if (recycled_.empty() || !ring.fill(recycled_)) return;
    for (const uint64_t address : recycled_) with_kernel_[index(address)] = true;
    recycled_.clear();
  }

  // Bytes from `address` to the end of its chunk.
  uint64_t room(uint64_t address) const {
    const uint64_t size = uint64_t{1} << shift_;
    return size - (address & (size - 1));
  }

 private:
  uint64_t index(uint64_t address) const { return (address - first_address_) >> shift_; }  // huge below the first one

  uint64_t first_address_ = 0;
  int shift_ = 0;
  std::vector<bool> with_kernel_;
  std::vector<uint64_t> recycled_;
};

class XskReceiver {
 public:
  // Packets that one receive() gives at most.
  static constexpr size_t kMaxBurst = 64;
  // The largest frame in several chunks.
  static constexpr size_t kMaxFrameSize = 8192;

  // What is known of a queue's ring: its chunks, and the descriptors of a frame whose last one has not come yet.
  struct Source {
    static constexpr size_t kMaxChunks = 4;
    RxChunks chunks;
    std::array<xdp_desc, kMaxChunks> partial{};
    size_t partial_count = 0;
    uint64_t partial_size = 0;    // with what there was no place for
    bool partial_broken = false;  // it will be no frame: a descriptor did not count, or there are too many
  };

  XskReceiver() = default;
  // `area`: what descriptors' addresses count from; the chunks of all queues lie in it. `multi_buffer`: frames may take
  // several chunks.
  XskReceiver(std::span<const uint8_t> area, bool multi_buffer) : area_(area) {
    if (multi_buffer) bounce_.resize(kMaxBurst * kMaxFrameSize);
  }

  // PacketIo::receive(). A queue has `source`, and `xsk` with the receive functions of XskQueue.
  template <class Queues>  // of pointers
  size_t receive(const Queues& queues, std::span<RxPacket> out) {
    out = out.first(std::min(out.size(), kMaxBurst));
    for (const auto& queue : queues) {  // the views of the last call end here
      queue->source.chunks.publish(queue->xsk);
      queue->xsk.wake_rx_if_needed();
    }
    size_t count = 0;
    for (size_t i = 0; i < queues.size() && count < out.size(); ++i) {
      auto& queue = *queues[(first_queue_ + i) % queues.size()];
      count = receive_from(queue.xsk, queue.source, out, count);
    }
    first_queue_ = (first_queue_ + 1) % queues.size();
    counters_.rx_packets += count;
    return count;
  }

  // The part of them that is counted here: rx_..., ring_errors.
  const IoCounters& counters() const { return counters_; }
  void observe_malformed(PacketIo::MalformedObserver observer) { malformed_observer_ = std::move(observer); }

 private:
  // `count` packets of `out` are there already; how many there are now.
  template <class Ring>
  size_t receive_from(Ring& ring, Source& source, std::span<RxPacket> out, size_t count) {
    uint32_t index = 0;
    const uint32_t available = ring.peek_rx(static_cast<uint32_t>(out.size() - count), index);
    for (uint32_t i = 0; i < available; ++i) {  // each becomes one packet at most
      std::span<const uint8_t> frame;
      if (!gather(source, ring.rx_descriptor(index + i), count, frame)) continue;
      assert(count < out.size());
      if (parse(frame, out[count])) ++count;
    }
    if (available > 0) ring.release_rx(available);
    return count;
  }

  // The frame that `descriptor` completes, in one piece, copied to `slot` if need be. False: more is to come, or it is
  // no frame.
  bool gather(Source& source, const xdp_desc& descriptor, size_t slot, std::span<const uint8_t>& frame);
  // False: too long, or broken.
  bool assemble(const Source& source, size_t slot, std::span<const uint8_t>& frame);
  bool parse(std::span<const uint8_t> frame, RxPacket& packet);

  std::span<const uint8_t> area_;
  std::vector<uint8_t> bounce_;  // a slot of kMaxFrameSize bytes for each packet of a burst; empty: no multi-buffer
  size_t first_queue_ = 0;       // where receive() starts, so that no queue starves
  IoCounters counters_;
  PacketIo::MalformedObserver malformed_observer_;
};

}  // namespace uroce::io

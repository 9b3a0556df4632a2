// SPDX-License-Identifier: BSD-2-Clause
// A DPDK port without DPDK, for DpdkIo: the test is the driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/io/dpdk/dpdk.h"

namespace uroce::io::test {

class FakePort {
 public:
  using Bytes = std::vector<uint8_t>;
  struct Arriving {
    std::vector<Bytes> segments;
    uint16_t vlan = 0;
    bool bad_checksum = false;
    uint32_t lies_by = 0;  // how much longer it says it is
  };

  std::deque<Arriving> arriving;
  std::vector<std::pair<uint32_t, Bytes>> sent;  // with the queue
  std::vector<uint16_t> inserted;                // VLAN IDs that the driver was to put into them
  size_t takes = SIZE_MAX;                       // frames that the driver takes until it takes no more
  size_t buffers = 1024;                         // free ones
  size_t in_hand = 0;                            // that DpdkIo has
  bool link = true;
  bool contradicts = false;  // what the driver says of frames cannot be
  bool closed = false;
  DpdkPortCounters counters{};

  DpdkPort* port() { return reinterpret_cast<DpdkPort*>(this); }
  static const DpdkCalls& calls() {
    static const DpdkCalls all{.interface = "",
                               .version = nullptr,
                               .open = nullptr,
                               .close = [](DpdkPort* p) { of(p).closed = true; },
                               .receive = receive,
                               .release = release,
                               .gather = gather,
                               .reserve = reserve,
                               .send = send,
                               .link_up = [](DpdkPort* p) { return of(p).link; },
                               .arm = [](DpdkPort* p) { return of(p).arriving.empty(); },
                               .counters = [](DpdkPort* p, DpdkPortCounters* out) { *out = of(p).counters; }};
    return all;
  }

 private:
  struct Buffer {
    FakePort* owner;
    Arriving frame;
  };
  static constexpr uint32_t kRoom = 8192;

  static FakePort& of(DpdkPort* p) { return *reinterpret_cast<FakePort*>(p); }

  DpdkBuffer hand_out(std::unique_ptr<Buffer> buffer) {
    ++in_hand;
    uint32_t total = buffer->frame.lies_by;
    for (const Bytes& segment : buffer->frame.segments) total += static_cast<uint32_t>(segment.size());
    Bytes& first = buffer->frame.segments.front();
    const DpdkBuffer out{.handle = buffer.get(),
                         .data = first.data(),
                         .size = static_cast<uint32_t>(first.size()),
                         .total = total,
                         .segments = static_cast<uint16_t>(buffer->frame.segments.size()),
                         .vlan = buffer->frame.vlan,
                         .bad_checksum = buffer->frame.bad_checksum};
    buffer.release();
    return out;
  }

  static size_t receive(DpdkPort* p, DpdkBuffer* frames, size_t count) {
    FakePort& self = of(p);
    size_t n = 0;
    for (; n < count && !self.arriving.empty(); ++n) {
      frames[n] = self.hand_out(std::make_unique<Buffer>(Buffer{&self, std::move(self.arriving.front())}));
      if (self.contradicts) frames[n].size = frames[n].total = frames[n].segments = 0;
      self.arriving.pop_front();
    }
    return n;
  }
  static void release(const DpdkBuffer* frames, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const std::unique_ptr<Buffer> buffer(static_cast<Buffer*>(frames[i].handle));
      --buffer->owner->in_hand;
    }
  }
  static size_t gather(const DpdkBuffer* frame, uint8_t* out, size_t room) {
    size_t size = 0;
    for (const Bytes& segment : static_cast<const Buffer*>(frame->handle)->frame.segments) {
      if (segment.size() > room - size) return 0;
      std::copy(segment.begin(), segment.end(), out + size);
      size += segment.size();
    }
    return size == frame->total ? size : 0;
  }
  static size_t reserve(DpdkPort* p, DpdkBuffer* buffers, size_t count) {
    FakePort& self = of(p);
    if (self.buffers < self.in_hand + count) return 0;
    for (size_t i = 0; i < count; ++i) {
      buffers[i] = self.hand_out(std::make_unique<Buffer>(Buffer{&self, {.segments = {Bytes(kRoom)}}}));
    }
    return count;
  }
  static size_t send(DpdkPort* p, uint32_t queue, const DpdkBuffer* frames, size_t count) {
    FakePort& self = of(p);
    const size_t taken = std::min(count, self.takes);
    self.takes -= taken;
    for (size_t i = 0; i < taken; ++i) {
      self.sent.emplace_back(queue, Bytes(frames[i].data, frames[i].data + frames[i].size));
      self.inserted.push_back(frames[i].vlan);
    }
    release(frames, taken);
    return taken;
  }
};

}  // namespace uroce::io::test

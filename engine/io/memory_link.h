// SPDX-License-Identifier: BSD-2-Clause
// PacketIo without a network: two hosts joined in memory, or one that receives what it sends. For tests, and for the
// engine when QPs of one process are connected to each other.
//
// Real bytes travel: send() builds the complete frame with its ICRC, receive() parses it like a frame from a NIC. The
// link is reliable and ordered; a full queue is backpressure. A host has an end for each of its shards, which gets the
// packets for the QPs of that shard. Each end belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/io/packet_io.h"

namespace uroce::io {

struct MemoryLinkConfig {
  uint32_t queue_capacity = 1024;  // packets under way in each direction
  // Enough for 4096 bytes of payload behind the longest transport header.
  uint32_t max_udp_length = 8 + io::TxPacket::kMaxHeaderSize + 4096 + 4;
};

class FrameQueue;  // from one end to another
using FrameQueues = std::vector<std::shared_ptr<FrameQueue>>;

class MemoryEnd final : public PacketIo {
 public:
  // `in`: from each end of the other host; `out`: to each of its ends, a power of two.
  MemoryEnd(FrameQueues in, FrameQueues out, const MemoryLinkConfig& config);
  ~MemoryEnd() override;

  size_t receive(std::span<RxPacket> out) override;
  size_t send(std::span<io::TxPacket> burst) override;
  bool flush() override { return true; }
  // Nothing to sleep on: only the thread that would sleep could end the sleep.
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override;
  bool sent_waits() const override;
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override;
  IoCounters counters() const override { return counters_; }
  void observe_malformed(MalformedObserver observer) override { malformed_observer_ = std::move(observer); }

  // For tests: makes any bytes arrive at this end as a frame, or any InfiniBand bytes inside proper headers. False: the
  // queue is full.
  bool inject_frame(std::span<const uint8_t> frame);
  bool inject(const wire::Envelope& envelope, std::span<const uint8_t> ib);

  // For tests: from now on a copy of every frame this end sends is appended to `frames`. Null ends it.
  void record_sent(std::vector<std::vector<uint8_t>>* frames) { sent_frames_ = frames; }

 private:
  size_t receive_from(FrameQueue& queue, std::span<RxPacket> out);
  FrameQueue& way_to(const io::TxPacket& packet);

  const FrameQueues in_;
  const FrameQueues out_;
  size_t first_in_ = 0;  // whose turn it is
  uint32_t max_udp_length_;
  uint16_t next_ip_id_ = 0;
  IoCounters counters_;
  MalformedObserver malformed_observer_;
  std::vector<std::vector<uint8_t>>* sent_frames_ = nullptr;
};

std::pair<std::unique_ptr<MemoryEnd>, std::unique_ptr<MemoryEnd>> make_memory_link(const MemoryLinkConfig& config = {});
std::unique_ptr<MemoryEnd> make_memory_loop(const MemoryLinkConfig& config = {});

// Between hosts of so many shards each, a power of two.
using MemoryEnds = std::vector<std::unique_ptr<MemoryEnd>>;
std::pair<MemoryEnds, MemoryEnds> make_memory_links(uint32_t shards, const MemoryLinkConfig& config = {});
MemoryEnds make_memory_loops(uint32_t shards, const MemoryLinkConfig& config = {});

}  // namespace uroce::io

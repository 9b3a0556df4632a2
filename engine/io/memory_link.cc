// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/memory_link.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <new>

#include "engine/io/frame_builder.h"
#include "engine/io/steering.h"
#include "wire/bth.h"
#include "wire/ip_udp.h"

namespace uroce::io {

constexpr size_t kCacheLine = 64;

// A bounded FIFO of frames between two threads, made so that few cache lines go from one to the other: the frame with
// what is told of it, and one count in each direction, which moves once per burst. Slots keep their memory, so that a
// warm queue does not allocate. Frames handed out by take() stay in place until release().
class FrameQueue {
 public:
  struct Frame {
    size_t size;
    wire::Qpn source_qpn;
    SendReason reason;

    uint8_t* data() { return reinterpret_cast<uint8_t*>(this + 1); }
    std::span<const uint8_t> bytes() { return {data(), size}; }
  };
  explicit FrameQueue(uint32_t capacity) : slots_(capacity) {}

  // --- the sender's
  bool full() {
    if (filled_ - released_seen_ == slots_.size()) released_seen_ = released_.load(std::memory_order_acquire);
    return filled_ - released_seen_ == slots_.size();
  }
  // Room for a frame behind the filled ones; fill() keeps it.
  Frame& reserve(size_t size) {
    assert(!full());
    Slot& slot = slots_[filled_ % slots_.size()];
    if (slot.memory == nullptr || slot.capacity < size) {
      slot.capacity = size;
      slot.memory = std::make_unique<std::byte[]>(sizeof(Frame) + size);
    }
    return *new (slot.memory.get()) Frame{size, {}, SendReason::kFirst};
  }
  void fill() { ++filled_; }
  void publish() { tail_.store(filled_, std::memory_order_release); }

  // Some of it has not been received.
  bool waits() const { return filled_ != released_.load(std::memory_order_acquire); }

  // --- the receiver's
  bool empty() const { return taken_ == tail_.load(std::memory_order_acquire); }
  Frame& take() {
    assert(!empty());
    return *reinterpret_cast<Frame*>(slots_[taken_++ % slots_.size()].memory.get());
  }
  void release() {
    if (released_.load(std::memory_order_relaxed) != taken_) released_.store(taken_, std::memory_order_release);
  }

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> memory;
    size_t capacity = 0;
  };
  std::vector<Slot> slots_;
  // Frame numbers since the start: [released_, taken_) is with the receiver, [taken_, tail_) is waiting,
  // [tail_, filled_) is not published yet.
  alignas(kCacheLine) std::atomic<uint64_t> tail_{0};
  uint64_t filled_ = 0, released_seen_ = 0;
  alignas(kCacheLine) std::atomic<uint64_t> released_{0};
  uint64_t taken_ = 0;
};

MemoryEnd::MemoryEnd(FrameQueues in, FrameQueues out, const MemoryLinkConfig& config)
    : in_(std::move(in)), out_(std::move(out)), max_udp_length_(config.max_udp_length) {
  assert(std::has_single_bit(in_.size()) && std::has_single_bit(out_.size()));
}

MemoryEnd::~MemoryEnd() = default;

// Each time another queue is the first: none fills all of `out` for ever.
size_t MemoryEnd::receive(std::span<RxPacket> out) {
  for (const auto& queue : in_) queue->release();
  size_t count = 0;
  for (size_t i = 0; i < in_.size(); ++i) {
    count += receive_from(*in_[(first_in_ + i) & (in_.size() - 1)], out.subspan(count));
  }
  first_in_ = (first_in_ + 1) & (in_.size() - 1);
  counters_.rx_packets += count;
  return count;
}

size_t MemoryEnd::receive_from(FrameQueue& queue, std::span<RxPacket> out) {
  size_t count = 0;
  while (count < out.size() && !queue.empty()) {
    RxPacket& packet = out[count];
    FrameQueue::Frame& frame = queue.take();
    const wire::FrameError error = wire::parse_frame(frame.bytes(), packet.envelope, packet.ib);
    if (error != wire::FrameError::kNone) {
      ++counters_.rx_malformed;
      if (malformed_observer_) malformed_observer_(frame.bytes(), error);
      continue;
    }
    packet.renew();
    packet.frame = frame.bytes();
    packet.source_qpn = frame.source_qpn;
    packet.reason = frame.reason;
    counters_.rx_bytes += packet.ib.size() + 8;
    ++count;
  }
  return count;
}

FrameQueue& MemoryEnd::way_to(const io::TxPacket& packet) {
  if (out_.size() == 1) return *out_[0];
  const wire::Qpn to = wire::BthView::at(packet.header.data()).dest_qp();
  return *out_[shard_of(to, static_cast<uint32_t>(out_.size()))];
}

size_t MemoryEnd::send(std::span<io::TxPacket> burst) {
  size_t count = 0;
  for (; count < burst.size(); ++count) {
    io::TxPacket& packet = burst[count];
    assert(packet.udp_length() <= max_udp_length_);
    FrameQueue& queue = way_to(packet);
    if (queue.full()) {
      ++counters_.tx_backpressure;
      break;
    }
    FrameQueue::Frame& frame = queue.reserve(frame_size(packet));
    packet.ip_id = next_ip_id_++;
    if (!build_frame_guarded(packet, packet.ip_id, frame.data())) {
      packet.unreadable = true;
      continue;
    }
    frame.source_qpn = packet.source_qpn;
    frame.reason = packet.reason;
    queue.fill();
    if (sent_frames_ != nullptr) sent_frames_->emplace_back(frame.data(), frame.data() + frame.size);
    ++counters_.tx_packets;
    counters_.tx_bytes += packet.udp_length();
  }
  for (const auto& queue : out_) queue->publish();
  return count;
}

bool MemoryEnd::prepare_to_wait() {
  return std::all_of(in_.begin(), in_.end(), [](const auto& queue) { return queue->empty(); });
}

bool MemoryEnd::sent_waits() const {
  return std::any_of(out_.begin(), out_.end(), [](const auto& queue) { return queue->waits(); });
}

std::string MemoryEnd::description() const {
  const bool loop = std::find_first_of(in_.begin(), in_.end(), out_.begin(), out_.end()) != in_.end();
  return loop ? "memory loop" : "memory link";
}

bool MemoryEnd::inject_frame(std::span<const uint8_t> frame) {
  FrameQueue& queue = *in_.front();
  if (queue.full()) return false;
  std::copy(frame.begin(), frame.end(), queue.reserve(frame.size()).data());
  queue.fill();
  queue.publish();
  return true;
}

bool MemoryEnd::inject(const wire::Envelope& envelope, std::span<const uint8_t> ib) {
  std::vector<uint8_t> frame(wire::frame_header_size(envelope) + ib.size());
  const size_t header_size = wire::emit_frame_headers(envelope, static_cast<uint32_t>(8 + ib.size()), frame.data());
  std::copy(ib.begin(), ib.end(), frame.begin() + static_cast<ptrdiff_t>(header_size));
  return inject_frame(frame);
}

namespace {

// From each of `shards` ends to each of as many others.
struct Mesh {
  Mesh(uint32_t its_shards, uint32_t capacity) : shards(its_shards) {
    for (uint32_t i = 0; i < shards * shards; ++i) queues.push_back(std::make_shared<FrameQueue>(capacity));
  }
  FrameQueues from(uint32_t end) const { return {queues.begin() + end * shards, queues.begin() + (end + 1) * shards}; }
  FrameQueues to(uint32_t end) const {
    FrameQueues all;
    for (uint32_t i = 0; i < shards; ++i) all.push_back(queues[i * shards + end]);
    return all;
  }

  uint32_t shards;
  FrameQueues queues;
};

MemoryEnds make_ends(const Mesh& in, const Mesh& out, const MemoryLinkConfig& config) {
  MemoryEnds ends;
  for (uint32_t i = 0; i < in.shards; ++i) ends.push_back(std::make_unique<MemoryEnd>(in.to(i), out.from(i), config));
  return ends;
}

}  // namespace

std::pair<MemoryEnds, MemoryEnds> make_memory_links(uint32_t shards, const MemoryLinkConfig& config) {
  const Mesh forward(shards, config.queue_capacity), backward(shards, config.queue_capacity);
  return {make_ends(backward, forward, config), make_ends(forward, backward, config)};
}

MemoryEnds make_memory_loops(uint32_t shards, const MemoryLinkConfig& config) {
  const Mesh mesh(shards, config.queue_capacity);
  return make_ends(mesh, mesh, config);
}

std::pair<std::unique_ptr<MemoryEnd>, std::unique_ptr<MemoryEnd>> make_memory_link(const MemoryLinkConfig& config) {
  auto [first, second] = make_memory_links(1, config);
  return {std::move(first.front()), std::move(second.front())};
}

std::unique_ptr<MemoryEnd> make_memory_loop(const MemoryLinkConfig& config) {
  return std::move(make_memory_loops(1, config).front());
}

}  // namespace uroce::io

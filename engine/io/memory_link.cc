#include "engine/io/memory_link.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <new>

#include "engine/io/frame_builder.h"
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

MemoryEnd::MemoryEnd(std::shared_ptr<FrameQueue> in, std::shared_ptr<FrameQueue> out, const MemoryLinkConfig& config)
    : in_(std::move(in)), out_(std::move(out)), max_udp_length_(config.max_udp_length) {}

MemoryEnd::~MemoryEnd() = default;

size_t MemoryEnd::receive(std::span<RxPacket> out) {
  in_->release();
  size_t count = 0;
  while (count < out.size() && !in_->empty()) {
    RxPacket& packet = out[count];
    FrameQueue::Frame& frame = in_->take();
    const wire::FrameError error = wire::parse_frame(frame.bytes(), packet.envelope, packet.ib);
    if (error != wire::FrameError::kNone) {
      ++counters_.rx_malformed;
      if (malformed_observer_) malformed_observer_(frame.bytes(), error);
      continue;
    }
    packet.frame = frame.bytes();
    packet.faults = 0;
    packet.source_qpn = frame.source_qpn;
    packet.reason = frame.reason;
    counters_.rx_bytes += packet.ib.size() + 8;
    ++count;
  }
  counters_.rx_packets += count;
  return count;
}

size_t MemoryEnd::send(std::span<io::TxPacket> burst) {
  size_t count = 0;
  for (; count < burst.size(); ++count) {
    io::TxPacket& packet = burst[count];
    assert(packet.udp_length() <= max_udp_length_);
    if (out_->full()) {
      ++counters_.tx_backpressure;
      break;
    }
    FrameQueue::Frame& frame = out_->reserve(frame_size(packet));
    packet.ip_id = next_ip_id_++;
    if (!build_frame_guarded(packet, packet.ip_id, frame.data())) {
      packet.unreadable = true;
      continue;
    }
    frame.source_qpn = packet.source_qpn;
    frame.reason = packet.reason;
    out_->fill();
    if (sent_frames_ != nullptr) sent_frames_->emplace_back(frame.data(), frame.data() + frame.size);
    ++counters_.tx_packets;
    counters_.tx_bytes += packet.udp_length();
  }
  out_->publish();
  return count;
}

bool MemoryEnd::prepare_to_wait() {
  return in_->empty();
}

std::string MemoryEnd::description() const {
  return in_ == out_ ? "memory loop" : "memory link";
}

bool MemoryEnd::inject_frame(std::span<const uint8_t> frame) {
  if (in_->full()) return false;
  std::copy(frame.begin(), frame.end(), in_->reserve(frame.size()).data());
  in_->fill();
  in_->publish();
  return true;
}

bool MemoryEnd::inject(const wire::Envelope& envelope, std::span<const uint8_t> ib) {
  std::vector<uint8_t> frame(wire::frame_header_size(envelope) + ib.size());
  const size_t header_size = wire::emit_frame_headers(envelope, static_cast<uint32_t>(8 + ib.size()), frame.data());
  std::copy(ib.begin(), ib.end(), frame.begin() + static_cast<ptrdiff_t>(header_size));
  return inject_frame(frame);
}

std::pair<std::unique_ptr<MemoryEnd>, std::unique_ptr<MemoryEnd>> make_memory_link(const MemoryLinkConfig& config) {
  auto forward = std::make_shared<FrameQueue>(config.queue_capacity);
  auto backward = std::make_shared<FrameQueue>(config.queue_capacity);
  return {std::make_unique<MemoryEnd>(backward, forward, config),
          std::make_unique<MemoryEnd>(forward, backward, config)};
}

std::unique_ptr<MemoryEnd> make_memory_loop(const MemoryLinkConfig& config) {
  auto queue = std::make_shared<FrameQueue>(config.queue_capacity);
  return std::make_unique<MemoryEnd>(queue, queue, config);
}

}  // namespace uroce::io

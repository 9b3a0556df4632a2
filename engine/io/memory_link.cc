#include "engine/io/memory_link.h"

#include <algorithm>
#include <cassert>

#include "engine/io/frame_builder.h"
#include "wire/ip_udp.h"

namespace uroce::io {

// A bounded FIFO of frames. Slots keep their memory, so that a warm queue does not allocate. Frames handed out by
// take() stay in place until release().
class FrameQueue {
 public:
  struct Slot {
    std::vector<uint8_t> frame;
    wire::Qpn source_qpn;
    io::SendReason reason = io::SendReason::kFirst;
  };
  explicit FrameQueue(uint32_t capacity) : slots_(capacity) {}

  bool full() const { return tail_ - released_ == slots_.size(); }
  // Room for a frame at the tail; push() makes it visible.
  uint8_t* reserve(size_t size) {
    assert(!full());
    std::vector<uint8_t>& frame = slots_[tail_ % slots_.size()].frame;
    frame.resize(size);
    return frame.data();
  }
  std::span<const uint8_t> push(wire::Qpn source_qpn = {}, io::SendReason reason = io::SendReason::kFirst) {
    Slot& slot = slots_[tail_++ % slots_.size()];
    slot.source_qpn = source_qpn;
    slot.reason = reason;
    return slot.frame;
  }

  bool empty() const { return taken_ == tail_; }
  const Slot& take() {
    assert(!empty());
    return slots_[taken_++ % slots_.size()];
  }
  void release() { released_ = taken_; }

 private:
  std::vector<Slot> slots_;
  // Frame numbers since the start: [released_, taken_) is with the receiver, [taken_, tail_) is waiting.
  uint64_t released_ = 0, taken_ = 0, tail_ = 0;
};

MemoryEnd::MemoryEnd(std::shared_ptr<FrameQueue> in, std::shared_ptr<FrameQueue> out, const MemoryLinkConfig& config)
    : in_(std::move(in)), out_(std::move(out)), max_udp_length_(config.max_udp_length) {}

MemoryEnd::~MemoryEnd() = default;

size_t MemoryEnd::receive(std::span<RxPacket> out) {
  in_->release();
  size_t count = 0;
  while (count < out.size() && !in_->empty()) {
    RxPacket& packet = out[count];
    const FrameQueue::Slot& slot = in_->take();
    const wire::FrameError error = wire::parse_frame(slot.frame, packet.envelope, packet.ib);
    if (error != wire::FrameError::kNone) {
      ++counters_.rx_malformed;
      if (malformed_observer_) malformed_observer_(slot.frame, error);
      continue;
    }
    packet.frame = slot.frame;
    packet.faults = 0;
    packet.source_qpn = slot.source_qpn;
    packet.reason = slot.reason;
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
    uint8_t* const frame = out_->reserve(frame_size(packet));
    packet.ip_id = next_ip_id_++;
    if (!build_frame_guarded(packet, packet.ip_id, frame)) {
      packet.unreadable = true;
      continue;
    }
    const std::span<const uint8_t> sent = out_->push(packet.source_qpn, packet.reason);
    if (sent_frames_ != nullptr) sent_frames_->emplace_back(sent.begin(), sent.end());
    ++counters_.tx_packets;
    counters_.tx_bytes += packet.udp_length();
  }
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
  std::copy(frame.begin(), frame.end(), in_->reserve(frame.size()));
  in_->push();
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

// SPDX-License-Identifier: BSD-2-Clause
#include "capture/tap.h"

#include <algorithm>
#include <cstring>
#include <sched.h>

#include "engine/io/frame_builder.h"
#include "engine/memory/memory_access.h"
#include "wire/bth.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

wire::Bth bth_of(const uint8_t* header) {
  return wire::Bth::parse(wire::BthView::at(header));
}

// The beginning of the frame of `packet`, `size` bytes of it; shorter than the frame, so that there is no ICRC in it.
bool build_beginning(const io::TxPacket& packet, uint8_t* out, size_t size) {
  std::array<uint8_t, wire::kMaxFrameHeaderSize> headers;
  const auto append = [end = out + size, &out](const uint8_t* data, size_t count) {
    count = std::min(count, static_cast<size_t>(end - out));
    std::memcpy(out, data, count);
    out += count;
  };
  wire::Envelope envelope = *packet.envelope;
  envelope.ip_id = packet.ip_id;
  append(headers.data(), wire::emit_frame_headers(envelope, packet.udp_length(), headers.data()));
  append(packet.header.data(), packet.header_size);
  const bool readable = guard_payload(packet, [&] {
    for (size_t i = 0; i < packet.fragment_count; ++i) append(packet.fragments[i].data, packet.fragments[i].size);
  });
  static constexpr uint8_t kPad[4] = {};
  append(kPad, sizeof(kPad));
  return readable;
}

}  // namespace

// While one exists, no channel goes away.
class CaptureTap::Use {
 public:
  explicit Use(std::atomic<uint32_t>& uses) : uses_(uses) { uses_.fetch_add(1, std::memory_order_seq_cst); }
  ~Use() { uses_.fetch_add(1, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<uint32_t>& uses_;
};

bool CaptureChannel::wants(uint32_t qpn, uint32_t other) const {
  if (wants_all()) return true;
  return std::any_of(filter_.qpns.begin(), filter_.qpns.end(), [&](uint32_t q) { return q == qpn || q == other; });
}

// Puts the header into the ring and says where `packet.captured` bytes go; null: no room.
uint8_t* CaptureChannel::open(CapturedPacket& packet) {
  seen.store(seen.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  packet.captured = filter_.snap == 0 ? packet.original : std::min(packet.original, filter_.snap);
  packet.missing = missing_;
  uint8_t* const entry = ring.reserve(sizeof(packet) + packet.captured);
  if (entry == nullptr) {
    ++missing_;
    dropped.store(dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return nullptr;
  }
  std::memcpy(entry, &packet, sizeof(packet));
  return entry + sizeof(packet);
}

void CaptureChannel::close() {
  missing_ = 0;
  const size_t limit = ring.size() / 4;
  const bool below = ring.used() < limit;
  ring.commit();
  if (below && ring.used() >= limit) kick_();
}

bool CaptureTap::add(CaptureChannel& channel) {
  for (auto& slot : channels_) {
    if (slot.load() != nullptr) continue;
    slot.store(&channel);
    listeners_.fetch_add(1);
    return true;
  }
  return false;
}

void CaptureTap::remove(CaptureChannel& channel) {
  for (auto& slot : channels_) {
    if (slot.load() != &channel) continue;
    slot.store(nullptr, std::memory_order_seq_cst);
    listeners_.fetch_sub(1);
  }
  // Who uses the channels now may have seen it; who comes later has not.
  const uint32_t uses = uses_.load(std::memory_order_seq_cst);
  while (uses % 2 == 1 && uses_.load(std::memory_order_acquire) == uses) sched_yield();
}

void CaptureTap::sent(std::span<const io::TxPacket> packets, int64_t time) {
  const Use use(uses_);
  for (auto& slot : channels_) {
    CaptureChannel* const channel = slot.load(std::memory_order_seq_cst);
    if (channel == nullptr) continue;
    for (const io::TxPacket& packet : packets) {
      if (!packet.unreadable) record_sent(*channel, packet, time);
    }
  }
}

void CaptureTap::record_sent(CaptureChannel& channel, const io::TxPacket& packet, int64_t time) {
  if (!channel.wants(packet.source_qpn.value(), bth_of(packet.header.data()).dest_qp.value())) return;
  if (packet.psns > 1) return;  // made before the capture began, and longer than any on a wire
  CapturedPacket entry;
  entry.time = time;
  entry.original = static_cast<uint32_t>(frame_size(packet));
  entry.outbound = true;
  entry.faults = packet.faults;
  entry.reason = packet.reason;
  uint8_t* const frame = open(channel, entry);
  if (frame == nullptr) return;
  // The kernel's headers, as it will write them (wire.md "UDP sockets").
  io::TxPacket copy;
  wire::Envelope envelope;
  const io::TxPacket* as_sent = &packet;
  if (info_.kernel_routes) {
    copy = packet;
    envelope = *packet.envelope;
    envelope.source_port = wire::kRoceUdpPort;
    envelope.dont_fragment = true;
    envelope.source_mac = info_.mac;
    copy.envelope = &envelope;
    as_sent = &copy;
  }
  const bool whole = entry.captured == entry.original;
  const bool readable =
      whole ? build_frame_guarded(*as_sent, as_sent->ip_id, frame) : build_beginning(*as_sent, frame, entry.captured);
  if (readable) channel.close();
}

// Null: no room.
uint8_t* CaptureTap::open(CaptureChannel& channel, CapturedPacket& entry) {
  uint8_t* const frame = channel.open(entry);
  if (frame == nullptr) dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return frame;
}

void CaptureTap::arrived(std::span<const RxPacket> packets, std::span<const uint64_t> verdicts, SeenAt seen_at,
                         int64_t time) {
  const Use use(uses_);
  for (auto& slot : channels_) {
    CaptureChannel* const channel = slot.load(std::memory_order_seq_cst);
    if (channel == nullptr) continue;
    for (size_t i = 0; i < packets.size(); ++i) {
      record_arrived(*channel, packets[i], {.time = time, .verdict = verdicts[i], .seen_at = seen_at});
    }
  }
}

void CaptureTap::not_delivered(const RxPacket& packet, int64_t time) {
  const uint64_t no_verdict = 0;
  arrived({&packet, 1}, {&no_verdict, 1}, SeenAt::kNotDelivered, time);
}

// Of no queue pair: a filter for some leaves it out.
void CaptureTap::malformed(std::span<const uint8_t> frame, wire::FrameError error, int64_t time) {
  const Use use(uses_);
  for (auto& slot : channels_) {
    CaptureChannel* const channel = slot.load(std::memory_order_seq_cst);
    if (channel == nullptr || !channel->wants_all()) continue;
    CapturedPacket entry{.time = time, .original = static_cast<uint32_t>(frame.size()), .malformed = error};
    if (uint8_t* const to = open(*channel, entry)) {
      std::memcpy(to, frame.data(), entry.captured);
      channel->close();
    }
  }
}

void CaptureTap::record_arrived(CaptureChannel& channel, const RxPacket& packet, CapturedPacket entry) {
  const uint32_t to = packet.ib.size() >= wire::Bth::kSize ? bth_of(packet.ib.data()).dest_qp.value() : 0;
  const bool looped = entry.seen_at == SeenAt::kLoop;
  if (!channel.wants(to, looped ? packet.source_qpn.value() : to)) return;
  // The same of another process of this host; PacketIo::show_packets() had not been called yet.
  if (packet.psns > 1 || !packet.apart.empty()) return;
  entry.faults = packet.faults;
  if (looped) entry.reason = packet.reason;
  if (packet.frame.empty()) return record_rebuilt(channel, packet, entry);
  entry.original = static_cast<uint32_t>(packet.frame.size());
  if (uint8_t* const frame = open(channel, entry)) {
    std::memcpy(frame, packet.frame.data(), entry.captured);
    channel.close();
  }
}

// The kernel has kept the headers: they are made again from what it tells of them.
void CaptureTap::record_rebuilt(CaptureChannel& channel, const RxPacket& packet, CapturedPacket entry) {
  std::array<uint8_t, wire::kMaxFrameHeaderSize> headers;
  wire::Envelope envelope = packet.envelope;
  if (info_.kernel_routes) envelope.destination_mac = info_.mac;
  const size_t header_size =
      wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + packet.ib.size()), headers.data());
  entry.original = static_cast<uint32_t>(header_size + packet.ib.size());
  entry.hidden_id = !envelope.ip_id_known && wire::is_v4(envelope);
  uint8_t* const frame = open(channel, entry);
  if (frame == nullptr) return;
  const size_t first = std::min<size_t>(header_size, entry.captured);
  std::memcpy(frame, headers.data(), first);
  std::memcpy(frame + first, packet.ib.data(), entry.captured - first);
  if (packet.without_icrc && entry.captured == entry.original) add_icrc(envelope, {frame + first, packet.ib.size()});
  channel.close();
}

}  // namespace uroce::io

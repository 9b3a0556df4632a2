// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/frames_and_sockets.h"

#include <algorithm>
#include <utility>

namespace uroce::io {

namespace {

bool precedes(const wire::IpAddress& a, const wire::IpAddress& b) {
  return a.bytes < b.bytes;
}

// Those to keep come to the front. Returns how many that are.
template <class Keep>
size_t keep_if(std::span<RxPacket> packets, Keep keep) {
  size_t kept = 0;
  for (RxPacket& packet : packets) {
    if (!keep(packet)) continue;
    if (&packets[kept] != &packet) packets[kept] = packet;
    ++kept;
  }
  return kept;
}

}  // namespace

FramesAndSockets::FramesAndSockets(std::unique_ptr<PacketIo> frames, std::unique_ptr<PacketIo> sockets, Copies copies,
                                   Time (*now)())
    : frames_(std::move(frames)), sockets_(std::move(sockets)), copies_(copies), turns_of_sockets_(now) {}

void FramesAndSockets::set_local_addresses(std::span<const wire::IpAddress> addresses) {
  local_addresses_.assign(addresses.begin(), addresses.end());
  std::sort(local_addresses_.begin(), local_addresses_.end(), precedes);
  remote_ = {};
}

bool FramesAndSockets::is_local(const wire::IpAddress& address) const {
  return std::binary_search(local_addresses_.begin(), local_addresses_.end(), address, precedes);
}

// Beside their turn, the sockets are looked into where nothing is in the rings, and the last packets came through
// sockets or somebody wants to know what there is.
size_t FramesAndSockets::receive(std::span<RxPacket> out) {
  if (turns_of_sockets_.comes()) {
    const size_t count = receive_from_sockets(out);
    return count > 0 ? count : receive_frames(out);
  }
  const size_t count = receive_frames(out);
  return count > 0 || (busy_ != sockets_.get() && !everywhere_) ? count : receive_from_sockets(out);
}

size_t FramesAndSockets::receive_frames(std::span<RxPacket> out) {
  const size_t count = frames_->receive(out);
  if (count > 0) busy_ = frames_.get();
  return drop_forged(out.first(count));
}

// What a host sends to its own addresses does not leave it. The kernel drops such frames too, but for some of IPv6.
size_t FramesAndSockets::drop_forged(std::span<RxPacket> packets) {
  return keep_if(packets, [this](const RxPacket& packet) {
    const wire::IpAddress& source = packet.envelope.source;
    if (source == remote_) return true;
    if (is_local(source)) {
      ++forged_dropped_;
      return false;
    }
    remote_ = source;
    return true;
  });
}

size_t FramesAndSockets::receive_from_sockets(std::span<RxPacket> out) {
  const size_t count = sockets_->receive(out);
  if (count == 0 && sockets_->looked_everywhere()) everywhere_ = false;
  const size_t kept = copies_ == Copies::kNone ? count : drop_copies(out.first(count));
  if (kept > 0) {
    turns_of_sockets_.found();
    busy_ = sockets_.get();
  }
  return kept;
}

size_t FramesAndSockets::drop_copies(std::span<RxPacket> packets) {
  return keep_if(packets, [this](const RxPacket& packet) {
    if (packet.in_run || is_local(packet.envelope.source)) return true;
    ++copies_dropped_.rx_packets;
    copies_dropped_.rx_bytes += packet.ib.size() + wire::kUdpSize;
    return false;
  });
}

// A frame to the netdev's own MAC address would leave and never come back.
PacketIo& FramesAndSockets::way_of(const io::TxPacket& packet) const {
  const wire::Envelope& envelope = *packet.envelope;
  const bool stays_here = envelope.destination_mac == envelope.source_mac;
  return stays_here || envelope.destination.is_multicast() || !frames_->is_open() ? *sockets_ : *frames_;
}

size_t FramesAndSockets::send(std::span<io::TxPacket> burst) {
  size_t taken = 0;
  while (taken < burst.size()) {
    const std::span<io::TxPacket> rest = burst.subspan(taken);
    PacketIo& way = way_of(rest.front());
    const auto end =
        std::find_if(rest.begin(), rest.end(), [&](const auto& packet) { return &way_of(packet) != &way; });
    const auto same = rest.first(static_cast<size_t>(end - rest.begin()));
    const size_t sent = way.send(same);
    taken += sent;
    if (sent < same.size()) break;
  }
  return taken;
}

// Either of them may have others now, and ask for other events.
std::span<const pollfd> FramesAndSockets::wait_descriptors() const {
  wait_descriptors_.clear();
  for (const PacketIo* const io : {frames_.get(), sockets_.get()}) {
    const std::span<const pollfd> descriptors = io->wait_descriptors();
    wait_descriptors_.insert(wait_descriptors_.end(), descriptors.begin(), descriptors.end());
  }
  return wait_descriptors_;
}

bool FramesAndSockets::flush() {
  const bool frames = frames_->flush(), sockets = sockets_->flush();
  return frames && sockets;
}

void FramesAndSockets::look_everywhere() {
  everywhere_ = true;
  frames_->look_everywhere();
  sockets_->look_everywhere();
}

// After the sleep it is not known where something is.
bool FramesAndSockets::prepare_to_wait() {
  look_everywhere();
  const bool frames = frames_->prepare_to_wait(), sockets = sockets_->prepare_to_wait();
  return frames && sockets;
}

uint32_t FramesAndSockets::max_udp_length() const {
  return std::min(frames_->max_udp_length(), sockets_->max_udp_length());
}

std::string FramesAndSockets::description() const {
  return frames_->description() + ", and sockets" + (copies_ == Copies::kOfAll ? " with copies of all" : "");
}

IoCounters FramesAndSockets::counters() const {
  IoCounters counters = frames_->counters();
  IoCounters sockets = sockets_->counters();
  if (copies_ != Copies::kNone) {
    sockets.rx_packets -= copies_dropped_.rx_packets;
    sockets.rx_bytes -= copies_dropped_.rx_bytes;
  }
  counters.rx_forged += forged_dropped_;
  if (copies_ == Copies::kOfAll) sockets.rx_no_buffer = 0;  // nearly all that they lose has come as frames
  return counters += sockets;
}

}  // namespace uroce::io

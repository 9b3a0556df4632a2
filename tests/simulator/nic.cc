// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/nic.h"

#include <utility>

#include "engine/io/frame_builder.h"
#include "wire/ip_udp.h"

namespace uroce::simulator {

size_t Nic::receive(std::span<io::RxPacket> out) {
  taken_.clear();
  size_t count = 0;
  for (; count < out.size() && !arrived_.empty(); arrived_.pop_front()) {
    const Frame& frame = taken_.emplace_back(std::move(arrived_.front()));
    if (watcher_) watcher_(Direction::kIn, frame);
    io::RxPacket packet;
    if (wire::parse_frame(frame, packet.envelope, packet.ib) != wire::FrameError::kNone) continue;
    packet.frame = frame;
    out[count++] = packet;
  }
  return count;
}

size_t Nic::send(std::span<io::TxPacket> burst) {
  size_t count = 0;
  for (; count < burst.size() && !out_.full(); ++count) {
    io::TxPacket& packet = burst[count];
    packet.ip_id = ip_id_++;
    Frame frame(io::frame_size(packet));
    packet.unreadable = !io::build_frame_guarded(packet, packet.ip_id, frame.data());
    if (packet.unreadable) continue;
    if (watcher_) watcher_(Direction::kOut, frame);
    out_.send(std::move(frame));
  }
  return count;
}

}  // namespace uroce::simulator

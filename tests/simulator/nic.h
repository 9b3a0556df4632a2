// SPDX-License-Identifier: BSD-2-Clause
// The NIC of a simulated host: the PacketIo of its datapath. Its transmit queue is that of the cable (Link), and full
// when that is full; what arrives waits until the datapath takes it.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "engine/io/packet_io.h"
#include "tests/simulator/link.h"

namespace uroce::simulator {

class Nic final : public io::PacketIo {
 public:
  enum class Direction : uint8_t { kIn, kOut };
  // Sees every frame that the datapath sends, and every one that it takes; may be null.
  using Watcher = std::function<void(Direction, const Frame&)>;

  Nic(Link& out, Watcher watcher) : out_(out), watcher_(std::move(watcher)) {}

  void arrive(Frame frame) { arrived_.push_back(std::move(frame)); }
  bool empty() const { return arrived_.empty(); }

  size_t receive(std::span<io::RxPacket> out) override;
  size_t send(std::span<io::TxPacket> burst) override;
  size_t room() const override { return out_.room(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return empty(); }
  uint32_t max_udp_length() const override { return 8 + io::TxPacket::kMaxHeaderSize + 4096 + 4; }
  std::string description() const override { return "simulated"; }
  io::IoCounters counters() const override { return {}; }

 private:
  Link& out_;
  const Watcher watcher_;
  std::deque<Frame> arrived_;
  std::vector<Frame> taken_;  // by the last receive()
  uint16_t ip_id_ = 0;
};

}  // namespace uroce::simulator

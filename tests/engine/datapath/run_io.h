// SPDX-License-Identifier: BSD-2-Clause
// A packet I/O that sends runs of packets, as UDP sockets do, to nowhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/packet_io.h"

namespace uroce::engine::test {

class RunIo final : public io::PacketIo {
 public:
  // A run has at most so many bytes.
  explicit RunIo(size_t bytes) : bytes_(bytes) {}

  std::vector<size_t> bursts;  // packets that it was offered at a time
  size_t room = 1000;          // packets that it takes of these; of 1 it takes one, and then none
  bool refuses_runs = false;   // the kernel does

  size_t run(uint32_t udp_length) const override { return bytes_ / udp_length; }
  bool takes_runs(const wire::IpAddress&) const override { return !refuses_runs; }
  size_t receive(std::span<io::RxPacket>) override { return 0; }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 4352; }
  std::string description() const override { return "runs"; }
  io::IoCounters counters() const override { return {}; }
  size_t send(std::span<io::TxPacket> burst) override {
    bursts.push_back(burst.size());
    return std::min(burst.size(), std::exchange(room, room == 1 ? 0 : room));
  }

 private:
  const size_t bytes_;
};

}  // namespace uroce::engine::test

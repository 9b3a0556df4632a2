// SPDX-License-Identifier: BSD-2-Clause
// What takes the place of the packet I/O when its netdev is gone: packets go nowhere and none come, so that QPs end as
// they do on a dead wire and nobody waits for a descriptor. Made by the engine.
#pragma once

#include "engine/io/packet_io.h"

namespace uroce::io {

class ClosedIo final : public PacketIo {
 public:
  // Keeps what `former` has counted and promised.
  explicit ClosedIo(const PacketIo& former)
      : max_udp_length_(former.max_udp_length()),
        kernel_routes_(former.kernel_routes()),
        counters_(former.counters()) {}

  size_t receive(std::span<RxPacket>) override { return 0; }
  size_t send(std::span<io::TxPacket> burst) override {
    counters_.tx_errors += burst.size();
    return burst.size();
  }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override { return "closed"; }
  bool kernel_routes() const override { return kernel_routes_; }
  IoCounters counters() const override { return counters_; }

 private:
  const uint32_t max_udp_length_;
  const bool kernel_routes_;
  IoCounters counters_;
};

}  // namespace uroce::io

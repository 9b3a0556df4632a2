// A PacketIo that wraps another one and makes faults on purpose (UROCE_FAULTS). The engine puts it around any backend.
//
// Packets received are dropped, duplicated, reordered and corrupted; packets sent are dropped and duplicated only,
// since their bytes, and with them the ICRC, are made further down. Each probability applies to each packet in each
// direction, so with an injector at both ends a packet runs the risk of a drop twice. Same seed and same calls: same
// faults.
//
// A reordered packet is held back until 1..8 later ones have gone ahead, or until kIdlePolls receive() in a row found
// nothing. A corrupted one has one bit of its InfiniBand bytes (BTH to ICRC) flipped.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "engine/io/fault_spec.h"
#include "engine/io/packet_io.h"

namespace uroce::io {

struct FaultCounters {
  uint64_t rx_dropped = 0;
  uint64_t rx_duplicated = 0;
  uint64_t rx_reordered = 0;
  uint64_t rx_corrupted = 0;
  uint64_t tx_dropped = 0;
  uint64_t tx_duplicated = 0;
};

class FaultInjector final : public PacketIo {
 public:
  static constexpr int kIdlePolls = 100;

  FaultInjector(std::unique_ptr<PacketIo> inner, const FaultSpec& spec);

  size_t receive(std::span<RxPacket> out) override;
  size_t send(std::span<wire::TxPacket> burst) override;
  void flush() override { inner_->flush(); }
  std::span<const pollfd> wait_descriptors() const override { return inner_->wait_descriptors(); }
  // Packets held here wake nobody: keep polling until they are out.
  bool prepare_to_wait() override { return held_.empty() && due_.empty() && inner_->prepare_to_wait(); }
  uint32_t max_udp_length() const override { return inner_->max_udp_length(); }
  std::string description() const override;
  bool kernel_routes() const override { return inner_->kernel_routes(); }
  // The inner backend's: what really moved.
  IoCounters counters() const override { return inner_->counters(); }
  FaultCounters fault_counters() const { return faults_; }

 private:
  // A packet with bytes of its own.
  struct Copy {
    explicit Copy(const RxPacket& packet) : envelope(packet.envelope), ib(packet.ib.begin(), packet.ib.end()) {}
    wire::Envelope envelope;
    std::vector<uint8_t> ib;
    int later_packets = 0;  // how many more may overtake it
  };

  bool happens(double probability);
  void pass_through_faults(const RxPacket& packet);
  void corrupt(Copy& copy);
  void release_overtaken();
  void release_all_held();

  std::unique_ptr<PacketIo> inner_;
  FaultSpec spec_;
  std::mt19937_64 random_;
  FaultCounters faults_;
  std::vector<RxPacket> arrived_;  // one burst of the inner backend
  std::vector<Copy> held_;         // reordered, waiting to be overtaken
  std::vector<Copy> due_;          // to be handed out, in this order
  std::vector<Copy> handed_out_;   // keeps the bytes of the last receive()
  int idle_polls_ = 0;
};

}  // namespace uroce::io

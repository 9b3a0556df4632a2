// SPDX-License-Identifier: BSD-2-Clause
// A PacketIo that wraps another one and makes faults on purpose (UROCE_FAULTS). The engine puts it around any backend.
//
// Packets are dropped, duplicated, reordered and corrupted on their way in and on their way out. Each probability
// applies to each packet in each direction, so with an injector at both ends a packet runs every risk twice. Same seed
// and same calls: same faults.
//
// A reordered packet is held back until 1..8 later ones of its direction have gone ahead, or until kIdlePolls receive()
// in a row found nothing. A corrupted one has one bit of its InfiniBand bytes (BTH to ICRC) flipped, as on the wire: a
// packet sent has the ICRC of what it was.
#pragma once

#include <functional>
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
  uint64_t tx_reordered = 0;
  uint64_t tx_corrupted = 0;
};

class FaultInjector final : public PacketIo {
 public:
  static constexpr int kIdlePolls = 100;
  // Packets taken that the inner backend has no room for; more are backpressure.
  static constexpr size_t kBacklog = 128;

  FaultInjector(std::unique_ptr<PacketIo> inner, const FaultSpec& spec);

  size_t receive(std::span<RxPacket> out) override;
  void look_everywhere() override { inner_->look_everywhere(); }
  bool looked_everywhere() const override { return inner_->looked_everywhere(); }
  size_t send(std::span<io::TxPacket> burst) override;
  size_t run(uint32_t udp_length) const override { return inner_->run(udp_length); }
  bool takes_runs(const wire::IpAddress& to) const override { return inner_->takes_runs(to); }
  bool flush() override;
  std::span<const pollfd> wait_descriptors() const override { return inner_->wait_descriptors(); }
  bool left_over() const override { return !arriving_.empty() || !leaving_.empty() || inner_->left_over(); }
  // Packets held here wake nobody: keep polling until they are out.
  bool prepare_to_wait() override { return arriving_.empty() && leaving_.empty() && inner_->prepare_to_wait(); }
  uint32_t max_udp_length() const override { return inner_->max_udp_length(); }
  std::string description() const override;
  bool kernel_routes() const override { return inner_->kernel_routes(); }
  // The inner backend's: what really moved.
  IoCounters counters() const override { return inner_->counters(); }
  FaultCounters fault_counters() const { return faults_; }

  // `observer` sees every packet that is dropped on its way in, and nobody else does.
  void observe_dropped(std::function<void(const RxPacket&)> observer) { dropped_observer_ = std::move(observer); }

 private:
  // A packet with bytes of its own.
  struct Arriving {
    explicit Arriving(const RxPacket& original);
    RxPacket as_received() const;
    std::span<uint8_t> ib() { return std::span(bytes).subspan(ib_at, ib_size); }
    wire::Envelope envelope;
    std::vector<uint8_t> bytes;  // the frame, or what the backend sees of it
    bool whole_frame;
    size_t ib_at, ib_size;
    uint8_t faults = 0;
  };
  struct Leaving {
    explicit Leaving(const io::TxPacket& original);
    // Points to its own bytes; valid until it is moved.
    std::span<io::TxPacket> as_burst();
    wire::Envelope envelope;
    std::vector<uint8_t> payload;
    io::TxPacket packet;
    bool readable;
    uint8_t faults = 0;
    // The call of send() that brought it, and where in its burst.
    uint64_t call = 0;
    size_t index = 0;
  };

  // The packets of one direction.
  template <class Packet>
  class Lane {
   public:
    bool empty() const { return held_.empty() && due_.empty(); }
    std::vector<Packet>& due() { return due_; }  // to go on, in this order
    void pass(Packet packet);                    // and with it what has waited for it
    void hold(Packet packet, int later_packets) { held_.push_back({std::move(packet), later_packets}); }
    void release_all();

   private:
    struct Held {
      Packet packet;
      int later_packets;  // how many more may overtake it
    };
    std::vector<Held> held_;
    std::vector<Packet> due_;
  };
  struct Counts {
    uint64_t &dropped, &duplicated, &reordered, &corrupted;
  };

  bool happens(double probability);
  void take_due(size_t most);
  // The faults it got, bits of Fault.
  template <class Packet>
  uint8_t pass_through_faults(Packet packet, Lane<Packet>& lane, Counts counts);
  void flip_bit(Arriving& packet);
  void flip_bit(Leaving& packet);
  void send_due();

  std::unique_ptr<PacketIo> inner_;
  FaultSpec spec_;
  std::mt19937_64 random_;
  FaultCounters faults_;
  std::function<void(const RxPacket&)> dropped_observer_;
  std::vector<RxPacket> arrived_;  // one burst of the inner backend
  Lane<Arriving> arriving_;
  Lane<Leaving> leaving_;
  uint64_t call_ = 0;
  std::span<io::TxPacket> offered_;   // while send() runs; told the IDs that its packets leave with
  std::vector<io::TxPacket> burst_;   // what the inner backend is given
  std::vector<Arriving> handed_out_;  // keeps the bytes of the last receive()
  int idle_polls_ = 0;
};

}  // namespace uroce::io

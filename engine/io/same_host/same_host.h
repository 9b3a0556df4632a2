// SPDX-License-Identifier: BSD-2-Clause
// A PacketIo that wraps another one and exchanges packets with other processes of this host through memory (peer.h).
// The engine puts it around any backend that shares the netdev's addresses with other processes. A packet with an
// address of this netdev goes to the process that has the QP number; until that process has become a peer, which the
// first packets ask for, and after its end, it goes by the backend. The transport is the same either way.
//
// Packets are copied into the ring, without ICRC. Of one that arrives only the headers are copied out of it if the
// payload is long: that stays where it is until the next receive() or send(), and the transport copies it to its
// destination. So bytes are copied twice. (Once, by process_vm_readv, is slower: packet-io.md "On one host".) What a
// packet costs besides is much more than 1 KiB of it, so packets of RC and XRC may be longer than the path MTU
// (engine/transport/common/long_packet.h), where the reader has said that it takes such: it does not while it shows its
// packets to somebody.
//
// Nothing is lost while the peer reads. A full ring is
// backpressure for a while; then, as the peer may have been stopped, packets to it are lost. The order is kept when
// packets begin to go by memory, or a UC message of which half came by the network would be lost.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/io/packet_io.h"
#include "engine/io/quiet_turns.h"
#include "engine/io/same_host/cost.h"
#include "engine/io/same_host/peer.h"
#include "engine/io/same_host/peer_exchange.h"

namespace uroce::io {

class SameHost final : public PacketIo {
 public:
  struct Config {
    uint32_t range_bits;  // a process has a range of 2^range_bits QP numbers
    // Asks for the process with that range as a peer, which may come by `peers`. Called while packets are sent.
    std::function<void(uint32_t range)> meet;
    // Somebody is to call peers->bury(), and not at once: the shard's lock is held.
    std::function<void()> bury;
    std::shared_ptr<PeerExchange> peers;
    Time (*now)() = monotonic_now;
  };
  // How long a peer with a full ring is waited for, before packets to it are lost.
  static constexpr Duration kPatience = std::chrono::milliseconds(10);

  SameHost(std::unique_ptr<PacketIo> network, Config config);

  // All of this host's: a record whose source is none of them is malformed, as a peer speaks for this host only. Until
  // it is told, any will do. Caller holds the lock of the shard.
  void set_local_addresses(std::span<const wire::IpAddress> addresses);

  size_t receive(std::span<RxPacket> out) override;
  void look_everywhere() override;
  bool looked_everywhere() const override { return network_->looked_everywhere(); }
  bool drained() const override { return peers_.empty() && network_->drained(); }
  size_t send(std::span<io::TxPacket> burst) override;
  size_t run(uint32_t udp_length) const override { return network_->run(udp_length); }
  uint32_t long_payload(wire::Qpn to) const override;
  void show_packets(bool shown) override;
  bool takes_runs(const wire::IpAddress& to) const override { return network_->takes_runs(to); }
  bool flush() override { return network_->flush(); }
  std::span<const pollfd> wait_descriptors() const override;
  bool left_over() const override { return network_->left_over(); }
  bool prepare_to_wait() override;
  uint32_t max_udp_length() const override { return network_->max_udp_length(); }
  std::string description() const override { return network_->description(); }
  bool kernel_routes() const override { return network_->kernel_routes(); }
  IoCounters counters() const override;
  void observe_malformed(MalformedObserver observer) override { network_->observe_malformed(std::move(observer)); }

 private:
  static constexpr size_t kMostRanges = 1024;
  static constexpr size_t kGroupAccounts = 64;

  uint32_t range_of(wire::Qpn qpn) const;
  uint32_t range_of(const io::TxPacket& packet) const;
  size_t account_of(const io::TxPacket& packet) const;
  Peer* peer_for(const io::TxPacket& packet) const;
  size_t with_peer(std::span<const io::TxPacket> packets, const Peer& peer) const;
  size_t without_peer(std::span<const io::TxPacket> packets);
  size_t send_near(std::span<io::TxPacket> packets);
  void wake(Peer& peer);
  size_t send_to(Peer& peer, std::span<io::TxPacket> packets);
  bool write(const io::TxPacket& packet, uint8_t* record) const;
  bool is_patient(Peer& peer) const;
  size_t receive_before_peers(std::span<RxPacket> out);
  static bool is_near(const TxPacket& packet);
  size_t receive_at_turn(std::span<RxPacket> out);
  size_t receive_from_peers(std::span<RxPacket> out);
  size_t receive_from(Peer& peer, std::span<RxPacket> out);
  bool read(Peer& peer, std::span<const uint8_t> record, RxPacket& packet);
  size_t headers_apart(std::span<const uint8_t> ib) const;
  bool is_local(const wire::IpAddress& address);
  void take_back();
  void take_new_peers();
  void look_after_peers();
  void answer_bells();
  void watch(Peer& peer, Time now);
  void end_peers();

  const std::unique_ptr<PacketIo> network_;
  const Config config_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::array<Peer*, kMostRanges> by_range_{};         // null: none to send to
  std::array<uint32_t, kMostRanges> without_peer_{};  // packets that went by the network for want of one
  Cost rings_, near_;                                 // of strangers; packets of this host that go by the network
  std::array<Cost::OfOne, kMostRanges> rings_of_{};
  std::array<Cost::OfOne, kMostRanges + kGroupAccounts> near_of_{};
  std::optional<std::vector<wire::IpAddress>> local_addresses_;
  std::optional<wire::IpAddress> last_source_;  // that was one of them
  size_t first_ = 0;                            // whose turn it is
  bool all_taken_up_ = true;                    // Peer::taken_up
  size_t before_ = 0;                           // packets of the network, while one that is not has a record
  bool network_busy_ = true;                    // it had packets last
  QuietTurns turns_of_network_;                 // where a look may be a system call
  uint32_t looks_ = 0;
  bool shown_ = false;                // packets arrive as on a wire
  bool lent_ = false;                 // receive() has handed out payload that is still in rings
  bool end_due_ = false;              // end_peers() was to be called meanwhile
  std::unique_ptr<uint8_t[]> bytes_;  // of the packets that receive() has handed out
  size_t used_ = 0;
  size_t handed_out_ = 0;  // bytes of records
  IoCounters counters_;
  mutable std::vector<pollfd> wait_descriptors_;
};

}  // namespace uroce::io

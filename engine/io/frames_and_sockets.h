// SPDX-License-Identifier: BSD-2-Clause
// PacketIo of a process that has leased a netdev's AF_XDP queues, beside others with UDP sockets on it: two as one.
// Packets to the wire leave as frames, through sockets only while the frames' I/O is being replaced. Packets to this
// host's own address, which no wire brings back, and to multicast groups, of which this host's kernel makes copies for
// other processes too, leave through sockets. What arrives comes from both: through sockets also whatever the XDP
// program has left to the kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/io/packet_io.h"
#include "engine/io/quiet_turns.h"

namespace uroce::io {

class FramesAndSockets final : public PacketIo {
 public:
  // Whether the kernel, and with it the sockets, gets a copy of each packet that comes as a frame. kDropped: it does,
  // and drops them before the sockets, or most of them.
  enum class Copies : uint8_t { kNone, kOfAll, kDropped };
  FramesAndSockets(std::unique_ptr<PacketIo> frames, std::unique_ptr<PacketIo> sockets, Copies copies = Copies::kNone,
                   Time (*now)() = monotonic_now);

  // All of this host's: no wire brings what comes from one of them, so frames from there are forged, and dropped. Where
  // there are copies, only that is taken from sockets, and runs, which as frames are too long. Caller holds the lock of
  // the shard.
  void set_local_addresses(std::span<const wire::IpAddress> addresses);

  size_t receive(std::span<RxPacket> out) override;
  void look_everywhere() override;
  bool looked_everywhere() const override { return !everywhere_ && frames_->looked_everywhere(); }
  size_t send(std::span<io::TxPacket> burst) override;
  bool takes_runs(const wire::IpAddress& to) const override { return sockets_->takes_runs(to); }
  bool flush() override;
  std::span<const pollfd> wait_descriptors() const override;
  bool drained() const override { return busy_ != nullptr && busy_->drained(); }
  bool left_over() const override { return frames_->left_over() || sockets_->left_over(); }
  bool prepare_to_wait() override;
  uint32_t max_udp_length() const override;
  std::string description() const override;
  IoCounters counters() const override;
  void observe_malformed(MalformedObserver observer) override { frames_->observe_malformed(std::move(observer)); }

 private:
  size_t receive_frames(std::span<RxPacket> out);
  size_t receive_from_sockets(std::span<RxPacket> out);
  size_t drop_forged(std::span<RxPacket> packets);
  size_t drop_copies(std::span<RxPacket> packets);
  bool is_local(const wire::IpAddress& address) const;
  PacketIo& way_of(const io::TxPacket& packet) const;

  const std::unique_ptr<PacketIo> frames_, sockets_;
  const Copies copies_;
  std::vector<wire::IpAddress> local_addresses_;  // in order
  wire::IpAddress remote_{};                      // of the last frame, if that is none of them
  uint64_t forged_dropped_ = 0;
  IoCounters copies_dropped_;
  mutable std::vector<pollfd> wait_descriptors_;
  const PacketIo* busy_ = nullptr;  // had packets last
  bool everywhere_ = false;         // the sockets' end is to be found (look_everywhere())
  QuietTurns turns_of_sockets_;
};

}  // namespace uroce::io

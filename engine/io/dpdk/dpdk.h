// SPDX-License-Identifier: BSD-2-Clause
// PacketIo over a port of DPDK: whole frames, built in its buffers (mbufs) and parsed where the driver has put them.
// uroce_dpdk.so, which is loaded when a port is opened, talks to DPDK (calls.h).
//
// The port has all of its queues in one shard. Where the kernel sees the port's frames too (net_af_packet), UDP sockets
// are beside it (frames_and_sockets.h): without them the kernel would answer that nobody is there, and runs of packets
// that nobody has cut come whole only to them.
//
// What bounds what: a frame lies in the buffer that the driver names, whose sizes the module has from the buffer
// itself (module/frames.h); lengths inside the frame are checked against that (wire::parse_frame). A frame in several
// buffers is copied into one slot of kMaxFrameSize bytes, or dropped if it is longer. Frames in hand are kMaxBurst,
// those to send kMaxBurst for each queue.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "engine/io/dpdk/calls.h"
#include "engine/io/dpdk/devargs.h"
#include "engine/io/packet_io.h"
#include "wire/ip_udp.h"

namespace uroce::io {

// Who takes the frames that are no RoCE packets, and has some to send: ARP and neighbour discovery of a port that the
// kernel does not see, or the kernel by a tap (tap_path.h). Called under the lock of the port's shard.
class OtherFrames {
 public:
  virtual ~OtherFrames() = default;
  // A frame to the port's MAC address or to a group, without tag; valid for the call only.
  virtual void take(std::span<const uint8_t> frame) = 0;
  // The next one to send, into `out`, which has room for the port's longest and a byte more; its size, 0: none.
  virtual size_t next(std::span<uint8_t> out) = 0;
  virtual void link(bool up) = 0;
  // Readable while next() has some, where asking for them is a system call; -1: asking costs nothing.
  virtual int descriptor() const { return -1; }
};

struct DpdkConfig {
  DpdkDevargs devargs;  // without device: net_af_packet on the netdev
  std::string netdev;   // name; empty: the kernel does not see the port
  int ifindex = 0;      // of the netdev
  uint32_t mtu = 1500;
  wire::MacAddress mac{};
  uint16_t vlan = 0;  // ID of the VLAN that the port's frames belong to; 0: they have no tag
  // Only packets for these QPNs and for groups are taken: other processes use the netdev too. Empty: all.
  std::optional<wire::QpnRange> qpns{};
  std::shared_ptr<OtherFrames> others{};  // may be null
  std::string module;                     // path of uroce_dpdk.so; empty: beside liburoce.so
};

class DpdkIo final : public PacketIo {
 public:
  static constexpr size_t kMaxBurst = 64;
  // The largest frame in several buffers.
  static constexpr size_t kMaxFrameSize = 8192;
  // Of IP packets in frames with a tag.
  static constexpr uint32_t kMaxMtu = kMaxFrameSize - wire::kEthernetSize - wire::kVlanTagSize;

  static IoResult<DpdkIo> open(const DpdkConfig& config);
  // On a port that is open; it is closed at the end. The module's functions outlive it.
  DpdkIo(const DpdkCalls& calls, DpdkPort* port, const DpdkPortInfo& info, const DpdkConfig& config);
  ~DpdkIo() override;

  size_t receive(std::span<RxPacket> out) override;
  size_t send(std::span<io::TxPacket> burst) override;
  bool flush() override;
  std::span<const pollfd> wait_descriptors() const override { return wait_descriptors_; }
  bool prepare_to_wait() override;
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override;
  IoCounters counters() const override;
  void observe_malformed(MalformedObserver observer) override { malformed_observer_ = std::move(observer); }

  // The kernel has each frame itself, too, and the port a copy of each that is for us.
  bool gets_copies() const { return driver_ == "net_af_packet"; }
  // The port has another MAC address. May be called while traffic flows.
  void set_mac(const wire::MacAddress& mac) { mac_ = mac; }

 private:
  // Frames that the driver has not taken yet, of one queue.
  struct Outgoing {
    std::array<DpdkBuffer, kMaxBurst> frames;
    size_t count = 0;
    Time stalled_since = kNever;  // the driver has taken none since
  };

  size_t longest_frame() const { return max_udp_length_ + wire::kMaxFrameHeaderSize; }
  // Without tag.
  size_t longest_other_frame() const { return wire::kEthernetSize + wire::kIpv6Size + max_udp_length_; }
  void release_held();
  bool take(const DpdkBuffer& buffer, size_t slot, RxPacket& packet);
  std::span<const uint8_t> frame_of(const DpdkBuffer& buffer, size_t slot);
  bool is_to_us(const DpdkBuffer& buffer, std::span<const uint8_t> frame) const;
  void give_others(std::span<const uint8_t> frame, bool tagged);
  bool others_cost_nothing() const { return others_->descriptor() < 0; }
  uint8_t* frame_start(const DpdkBuffer& buffer) const;
  void finish_frame(DpdkBuffer& buffer, size_t size) const;
  bool is_for_others(std::span<const uint8_t> ib) const;
  void count_malformed(std::span<const uint8_t> frame, wire::FrameError error);
  bool send_one(io::TxPacket& packet);
  bool transmit(uint32_t queue);
  void arm_timer();
  void send_others();
  void look_after_others();
  void tell_link();

  const DpdkCalls& calls_;
  DpdkPort* const port_;
  const std::string driver_;
  const bool hugepages_;
  const size_t interrupt_count_;  // descriptors by which the driver tells of frames; 0: it is polled
  const uint32_t max_udp_length_;
  const std::optional<wire::QpnRange> qpns_;
  const std::shared_ptr<OtherFrames> others_;
  const bool has_netdev_;
  const uint16_t vlan_;
  const bool inserts_vlan_;  // the driver
  wire::MacAddress mac_;

  std::array<DpdkBuffer, kMaxBurst> held_;  // received, and seen by whoever called receive()
  size_t held_count_ = 0;
  std::vector<uint8_t> untagged_;  // a frame for others
  std::vector<uint8_t> bounce_;    // a slot for each frame of a burst, from the first frame in several buffers on
  std::vector<Outgoing> outgoing_;
  std::array<DpdkBuffer, kMaxBurst> spare_;  // to build frames in
  size_t spare_count_ = 0;
  uint16_t next_ip_id_ = 0;

  uint32_t looks_ = 0;  // since the link was last looked at
  bool had_link_ = false;
  Time down_since_ = kNever;

  UniqueFd timer_;  // without interrupts
  Duration pause_{};
  bool quiet_ = true;  // nothing has come since the last sleep
  std::vector<pollfd> wait_descriptors_;
  IoCounters counters_;
  MalformedObserver malformed_observer_;
};

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// PacketIo over AF_XDP: whole frames, built in and parsed from memory shared with the kernel. When the engine uses it:
// device/io_choice.h; UdpIo is the alternative.
//
// One socket on every receive queue of the netdev, all on one UMEM. Native XDP where the driver has it, otherwise
// generic; zero-copy where the driver and the kernel agree, otherwise copy mode. A frame larger than a chunk travels in
// several (multi-buffer, Linux 6.6).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/io/af_xdp/close_together.h"
#include "engine/io/af_xdp/umem.h"
#include "engine/io/af_xdp/xdp_program.h"
#include "engine/io/af_xdp/xsk_queue.h"
#include "engine/io/af_xdp/xsk_receiver.h"
#include "engine/io/packet_io.h"

namespace uroce::io {

struct AfXdpConfig {
  int ifindex = 0;
  std::string netdev;                            // name
  uint32_t mtu = 1500;                           // the longest packets are of this one
  wire::MacAddress mac{};                        // the netdev's
  std::vector<wire::IpAddress> local_addresses;  // packets to these are ours
  std::vector<std::string> vlans;                // names of the VLAN netdevs above it
  bool force_generic = false;
  // Packets for these QPNs are taken, and the kernel gets all others: the queues are leased from a broker. Empty: all.
  std::optional<wire::QpnRange> qpns{};
  // Powers of two. Fewer are used where they would take more than 64 MiB, or more than half of RLIMIT_MEMLOCK.
  uint32_t rx_frames = 4096;  // per queue
  uint32_t tx_frames = 2048;  // for all queues together
};

class AfXdp final : public PacketIo {
 public:
  // Attaches to the netdev in the calling thread's network namespace; the destructor, or the end of the process,
  // detaches.
  static IoResult<AfXdp> open(const AfXdpConfig& config);
  // Why open() would fail, as far as that can be seen without loading anything.
  static std::optional<IoError> obstacle(int ifindex, const std::string& netdev, const std::vector<std::string>& vlans);
  // Of that the netdevs of VLANs above it, which it cannot tell packets of.
  static std::optional<IoError> vlan_obstacle(const std::string& netdev, const std::vector<std::string>& vlans);
  // The same as obstacle() for one that is open and would be opened anew: its own XDP program is none.
  static std::optional<IoError> obstacle_to_reopening(const std::string& netdev, const std::vector<std::string>& vlans);
  ~AfXdp() override;

  size_t receive(std::span<RxPacket> out) override { return receiver_.receive(queues_, out); }
  size_t send(std::span<io::TxPacket> burst) override;
  bool flush() override;
  std::span<const pollfd> wait_descriptors() const override { return wait_descriptors_; }
  bool prepare_to_wait() override;
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override;
  IoCounters counters() const override;
  void observe_malformed(MalformedObserver observer) override { receiver_.observe_malformed(std::move(observer)); }

  // The netdev has another MAC address. May be called while traffic flows. Returns 0 or an errno value.
  int set_mac(const wire::MacAddress& mac) { return program_.set_mac(mac); }

  // The netdev's addresses have changed; multicast groups that are joined count as addresses. May be called while
  // traffic flows. Returns 0 or an errno value.
  int set_local_addresses(std::span<const wire::IpAddress> addresses);

  // What the netdev has more of than when this was opened: a reason to open it anew. Empty: nothing. `netdev` (its
  // name) and `mtu`: as they are now.
  std::string outgrown(const std::string& netdev, uint32_t mtu) const;
  // Somebody has detached the XDP program by force: no packets come any more.
  bool is_detached() const;

 private:
  struct Queue {
    XskQueue xsk;
    XskReceiver::Source source;
  };

  // The largest multi-buffer frame: two chunks of 4096 bytes to send from.
  static constexpr size_t kMaxFrameSize = XskReceiver::kMaxFrameSize;

  AfXdp() = default;
  // Set-up, in open.cc.
  std::optional<IoError> attach(const AfXdpConfig& config);
  std::optional<IoError> open_sockets(const AfXdpConfig& config);
  std::optional<IoError> open_queues(const std::string& netdev);
  std::optional<IoError> open_queue(const std::string& netdev, uint32_t id);
  void set_up_sending(const AfXdpConfig& config);

  bool multi_buffer() const { return (xsk_config_.bind_flags & XDP_USE_SG) != 0; }
  bool send_one(io::TxPacket& packet);

  // Destroyed in reverse order: the sockets go before their memory, then the program. What waits in the kernel is held
  // by the destructor and ends last, all of it at the same time.
  CloseTogether held_;
  XdpProgram program_;
  UmemArea area_;
  XskConfig xsk_config_;
  std::unique_ptr<XskUmem> umem_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<pollfd> wait_descriptors_;
  TxSlots tx_slots_;
  XskReceiver receiver_;
  uint32_t max_udp_length_ = 0;
  uint32_t opened_mtu_ = 0;
  uint32_t queue_count_ = 0;  // receive queues at the time; kMaxRxQueues at most (netdev_query.h)
  uint16_t next_ip_id_ = 0;
  IoCounters counters_;  // of sending
};

}  // namespace uroce::io

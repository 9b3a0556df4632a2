// SPDX-License-Identifier: BSD-2-Clause
// PacketIo over UDP sockets: no privilege needed, works on any netdev. When the engine uses it: device/io_choice.h.
//
// The kernel makes Ethernet, IP and UDP headers and picks route and neighbour: envelopes' MAC addresses and flow labels
// are ignored, and the source port is 4791. Equal packets in a row leave as one message and arrive as one (sender.h,
// receiver.h), which costs little more than a packet alone. Received envelopes have no MAC addresses and no flow label,
// and for IPv4 no ID (ip_id_known false).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/io/packet_io.h"
#include "engine/io/udp/notices.h"
#include "engine/io/udp/run.h"
#include "engine/io/udp/socket.h"

namespace uroce::io {

struct UdpConfig {
  std::string netdev;  // name
  int ifindex = 0;
  uint32_t gso_max_size = RunLimits::kUsualGsoMaxSize;
  // Packets without UDP checksum are not wanted: of those that uroce's peers send, all but runs.
  bool only_runs = false;
  // Descriptors of sockets that are to be used, and stay the caller's; -1: UdpIo makes its own. With the first there
  // need not be the second.
  int socket_v4 = -1, socket_v6 = -1;
};

class UdpIo final : public PacketIo {
 public:
  static IoResult<UdpIo> open(const UdpConfig& config);
  ~UdpIo() override;

  size_t receive(std::span<RxPacket> out) override;
  void look_everywhere() override;
  bool looked_everywhere() const override { return unseen_ == 0; }
  bool drained() const override;
  size_t send(std::span<io::TxPacket> burst) override;
  size_t run(uint32_t udp_length) const override;
  bool takes_runs(const wire::IpAddress& to) const override;
  bool flush() override { return true; }  // send() has done it
  std::span<const pollfd> wait_descriptors() const override { return wait_descriptors_; }
  bool left_over() const override;
  bool prepare_to_wait() override;
  uint32_t max_udp_length() const override;
  std::string description() const override;
  bool kernel_routes() const override { return true; }
  IoCounters counters() const override;

  // They are this host's (RunPeers::set_local_addresses()). The caller holds the lock of the shard.
  void set_local_addresses(std::span<const wire::IpAddress> addresses);
  // What has been found out since the last call and people should know of. May be called while traffic flows.
  std::vector<std::string> take_notices() { return notices_.take(); }

 private:
  struct Port;  // one IP version

  explicit UdpIo(const UdpConfig& config);
  void add_port(int fd, UdpSocket socket, const UdpConfig& config);
  static size_t port_of(const io::TxPacket& packet);
  size_t receive_from(size_t port, std::span<RxPacket> out);

  const uint32_t gso_max_size_;
  IoCounters counters_;
  Notices notices_;
  std::vector<std::unique_ptr<Port>> ports_;  // IPv4, and IPv6 if the host has it
  std::vector<pollfd> wait_descriptors_;      // of each port
  size_t busy_ = 0;                           // the port that had packets last
  uint32_t looks_ = 0;
  uint32_t unseen_ = 0;  // a bit for each port whose end is to be found (look_everywhere())
};

}  // namespace uroce::io

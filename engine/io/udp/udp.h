// PacketIo over UDP sockets: no privilege needed, works on any netdev, slower than AfXdp. The engine uses it when
// AF_XDP is not to be had or not wanted.
//
// The kernel makes Ethernet, IP and UDP headers and picks route and neighbour: envelopes' MAC addresses and flow labels
// are ignored, and the source port is 4791. Packets are staged in memory of our own, so that what was summed is what
// the kernel sends. Received envelopes have no MAC addresses and no flow label, and for IPv4 no ID (ip_id_known false).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "engine/io/io_error.h"
#include "engine/io/packet_io.h"
#include "engine/io/udp/socket.h"

namespace uroce::io {

struct UdpConfig {
  std::string netdev;  // name
  int ifindex = 0;
  uint32_t mtu = 1500;
};

struct UdpRxSlot;  // in udp_message.h
struct UdpTxSlot;

class UdpIo final : public PacketIo {
 public:
  static IoResult<UdpIo> open(const UdpConfig& config);
  ~UdpIo() override;

  size_t receive(std::span<RxPacket> out) override;
  size_t send(std::span<io::TxPacket> burst) override;
  bool flush() override { return true; }  // send() has done it
  std::span<const pollfd> wait_descriptors() const override { return wait_descriptors_; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override;
  bool kernel_routes() const override { return true; }
  IoCounters counters() const override;

 private:
  struct Socket {
    UdpSocket socket;
    uint32_t dropped = 0;  // what the kernel last said: receive buffer full
  };

  explicit UdpIo(const UdpConfig& config);
  // Receives into the slots from `used` on and moves it.
  size_t receive_from(Socket& socket, size_t& used, std::span<RxPacket> out);
  size_t send_run(std::span<io::TxPacket> run, const Socket& socket);
  void wait_for_room(const Socket& socket);

  int ifindex_;
  uint32_t max_udp_length_;
  Socket v4_;
  Socket v6_;  // not open when the host has no IPv6
  std::vector<pollfd> wait_descriptors_;
  std::vector<mmsghdr> rx_headers_;  // one per slot, and what it points to:
  std::vector<mmsghdr> tx_headers_;
  std::vector<UdpRxSlot> rx_slots_;
  std::vector<UdpTxSlot> tx_slots_;
  std::vector<uint8_t> rx_buffers_;
  std::vector<uint8_t> tx_buffers_;
  bool v6_first_ = false;  // the sockets take turns
  IoCounters counters_;
};

}  // namespace uroce::io

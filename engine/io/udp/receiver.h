// SPDX-License-Identifier: BSD-2-Clause
// Receives packets from one UDP socket, alone or in runs that the kernel has joined (UDP_GRO), and hands them out one
// by one where they lie. Part of UdpIo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/socket.h>

#include "engine/io/packet_io.h"
#include "engine/io/udp/message.h"
#include "engine/io/udp/notices.h"
#include "engine/io/udp/run_peers.h"

namespace uroce::io {

class UdpReceiver {
 public:
  // `netdev`: index of the only one whose packets are taken, multicast ones apart: for them groups are joined on a
  // netdev. 0: the socket is bound to it.
  UdpReceiver(int fd, int netdev, RunPeers& peers, IoCounters& counters, Notices& notices);

  // As PacketIo::receive(). The kernel is not asked before all packets of what it gave have been handed out.
  size_t receive(std::span<RxPacket> out);
  bool left_over() const { return current_ < arrived_; }
  // The kernel had no more when it was asked last, and all of that has been handed out.
  bool drained() const { return !left_over() && last_ < kMessages; }
  uint32_t dropped() const { return dropped_; }

 private:
  static constexpr size_t kMessages = 16;  // of one system call
  static constexpr size_t kMessageSize = 1 << 16;

  // A message, and how far it has been handed out.
  struct Run {
    UdpArrival arrival;
    size_t offset = 0;
    uint16_t ip_id = 0, step = 1;  // of its next packet: what is expected
  };
  void prepare(size_t messages);
  void receive_messages();
  bool is_from_elsewhere(const UdpArrival& arrival) const;
  size_t hand_out(std::span<RxPacket> out);
  static void next_packet(Run& run, RxPacket& packet);
  static void expect_ids(Run& run);

  const int fd_;
  const int netdev_;
  RunPeers& peers_;
  IoCounters& counters_;
  Notices& notices_;
  uint32_t dropped_ = 0;  // what the kernel last said: receive buffer full
  size_t written_ = 0;    // messages that the kernel has written to since they were prepared
  size_t last_ = 0;       // messages of the last call
  size_t current_ = 0, arrived_ = 0;
  std::unique_ptr<uint8_t[]> bytes_;
  // One entry per message:
  std::array<mmsghdr, kMessages> headers_;
  std::array<UdpRxSlot, kMessages> slots_;
  std::array<Run, kMessages> runs_;
};

}  // namespace uroce::io

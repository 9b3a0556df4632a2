// SPDX-License-Identifier: BSD-2-Clause
// Sends packets through one UDP socket, in runs where it can (run.h). Packets are staged in memory of our own, so that
// what was summed is what the kernel sends, whatever the application does to it meanwhile. Part of UdpIo.
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
#include "engine/io/udp/run.h"
#include "engine/io/udp/run_peers.h"
#include "engine/io/udp/run_support.h"

namespace uroce::io {

class UdpSender {
 public:
  static constexpr size_t kBurst = 128;  // packets of one system call

  // `max_udp_length`: of any packet. `ifindex`: for link-local destinations.
  UdpSender(int fd, int ifindex, uint32_t max_udp_length, const RunLimits& limits, RunPeers& peers,
            IoCounters& counters, Notices& notices);

  // Packets of the socket's IP version. Returns how many are done with: sent, refused and counted, or unreadable. Fewer
  // than all: the send buffer is full.
  size_t send(std::span<io::TxPacket> packets);
  const RunSupport& runs() const { return support_; }

 private:
  struct Staged {
    size_t packets = 0;
    size_t messages = 0;
    bool unreadable = false;  // the packet behind these
  };
  struct Sent {
    size_t packets = 0;  // done with
    bool full = false;   // the send buffer
  };
  struct Message {
    const wire::Envelope* envelope;
    size_t packets;
    size_t segment;  // bytes of each, but for the last one
    uint32_t ip_length() const;
  };
  size_t next_message(std::span<const io::TxPacket> packets);
  Staged stage(std::span<io::TxPacket> packets);
  Sent send_staged(const Staged& staged);
  void on_sent(size_t message);
  void on_refused(const Message& message, int error);

  const int fd_;
  const int ifindex_;
  const uint32_t max_udp_length_;
  const RunLimits limits_;
  RunPeers& peers_;
  IoCounters& counters_;
  Notices& notices_;
  RunSupport support_;
  std::unique_ptr<uint8_t[]> bytes_;
  // One entry per message:
  std::array<mmsghdr, kBurst> headers_;
  std::array<UdpTxSlot, kBurst> slots_;
  std::array<Message, kBurst> messages_;
};

}  // namespace uroce::io

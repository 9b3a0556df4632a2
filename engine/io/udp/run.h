// SPDX-License-Identifier: BSD-2-Clause
// Runs: packets that leave as one message, which the kernel or the NIC cuts again (UDP_SEGMENT), and arrive as one
// (UDP_GRO). Each is a packet of its own on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/io/tx_packet.h"

namespace uroce::io {

// What one message can carry and still leave whole: a frame of gso_max_size bytes, which most netdevs say is 65536, is
// cut in software on the spot, so it stays one byte shorter (reference/udp-sockets.md "Segmentation offload").
struct RunLimits {
  static constexpr size_t kMaxPackets = 64;  // 128 from Linux 6.9 on
  static constexpr uint32_t kUsualGsoMaxSize = 65536;

  explicit RunLimits(uint32_t gso_max_size = kUsualGsoMaxSize);

  size_t packets = kMaxPackets;
  size_t bytes_v4, bytes_v6;  // of UDP payload
};

// How many packets from the front of `packets`, at least one of them, can leave as one message: they go the same way to
// the same QP, are equally long, and only the last may be shorter.
size_t run_length(std::span<const io::TxPacket> packets, const RunLimits& limits);

}  // namespace uroce::io

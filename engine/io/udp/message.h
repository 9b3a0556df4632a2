// SPDX-License-Identifier: BSD-2-Clause
// RoCE v2 packets as socket messages: the msghdr with addresses and control data for sending, and the way back. Used
// by UdpIo.
#pragma once

#include <array>
#include <cstdint>
#include <netinet/in.h>
#include <span>
#include <sys/socket.h>

#include "engine/io/packet_io.h"

namespace uroce::io {

union UdpAddress {
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// Room for packet info, traffic class, hop limit, segment size and drop count of either IP version.
struct UdpControl {
  alignas(cmsghdr) std::array<uint8_t, 160> bytes;
};

// What a msghdr points to while it is in use.
struct UdpRxSlot {
  iovec buffer;
  UdpAddress source;
  UdpControl control;
};

struct UdpTxSlot {
  iovec buffer;
  UdpAddress destination;
  UdpControl control;
};

// `message` receives into `buffer`. To be called again before each receive: the kernel overwrites lengths.
void prepare_receive(UdpRxSlot& slot, std::span<uint8_t> buffer, msghdr& message);

// What has arrived in one message: one packet, or a run of them, each `segment` bytes long but the last.
struct UdpArrival {
  wire::Envelope envelope;
  std::span<const uint8_t> bytes;
  size_t segment = 0;  // at least 1
  // Of the netdev that it came in on. From this host: of the one that has the address it was sent to.
  int ifindex = 0;
};

// Reads a message of `size` bytes. False: it was longer than its buffer, or the kernel did not say what the envelope
// needs. `dropped` is set when the message carries the socket's drop count.
bool parse_received(const msghdr& message, size_t size, UdpArrival& arrival, uint32_t& dropped);

// `message` sends `bytes` to where the envelope says, cut into packets of `segment` bytes; the last one may be shorter.
void prepare_send(UdpTxSlot& slot, const wire::Envelope& envelope, int ifindex, std::span<uint8_t> bytes,
                  size_t segment, msghdr& message);

// Writes packet `index` of a run to `out`, as the kernel will send it: its payload is copied as the ICRC is computed,
// so that the application may change it meanwhile and afterwards. Returns its bytes.
size_t stage_packet(io::TxPacket& packet, size_t index, uint8_t* out);
// Writes all of them, one behind the other. Returns how many; less than all: the next one's payload cannot be read.
size_t stage_run(std::span<io::TxPacket> run, uint8_t* out);

}  // namespace uroce::io

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

// Room for packet info, traffic class, hop limit and drop count of either IP version.
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

// Makes a packet of a message of `size` bytes. False: it was longer than its buffer, or the kernel did not say what
// the envelope needs. `dropped` is set when the message carries the socket's drop count.
bool parse_received(const msghdr& message, size_t size, RxPacket& packet, uint32_t& dropped);

// `message` sends `packet` out of `buffer`, to which it is copied as its ICRC is computed: the application may change
// its payload meanwhile and afterwards. False: the payload cannot be read.
bool prepare_send(UdpTxSlot& slot, const io::TxPacket& packet, int ifindex, std::span<uint8_t> buffer, msghdr& message);

}  // namespace uroce::io

// SPDX-License-Identifier: BSD-2-Clause
// SEND packets with payload made from their PSN, and the check that one arrived as it was sent. For the tests of the
// packet I/O.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <vector>

#include "engine/io/packet_io.h"
#include "engine/io/tx_packet.h"
#include "wire/envelope.h"
#include "wire/packet.h"

namespace uroce::io::test {

inline wire::IpAddress ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  const uint8_t bytes[4] = {a, b, c, d};
  return wire::IpAddress::v4(bytes);
}

// 2001:db8::last
inline wire::IpAddress ipv6(uint8_t last) {
  const uint8_t bytes[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(bytes);
}

inline wire::Envelope envelope_v4() {
  wire::Envelope envelope;
  envelope.source_mac = {2, 0, 0, 0, 0, 1};
  envelope.destination_mac = {2, 0, 0, 0, 0, 2};
  envelope.source = ipv4(192, 0, 2, 1);
  envelope.destination = ipv4(192, 0, 2, 2);
  envelope.source_port = 0xc123;
  return envelope;
}

inline wire::Envelope envelope_v6() {
  wire::Envelope envelope = envelope_v4();
  envelope.source = ipv6(1);
  envelope.destination = ipv6(2);
  return envelope;
}

// Some packets ready to be sent, and what has to arrive.
class TestBurst {
 public:
  // Adds a packet whose payload of `size` bytes lies in `fragments` pieces. `opcode`: one without extension headers
  // (UD's DETH is not there).
  void add(const wire::Envelope& envelope, uint32_t psn, size_t size, size_t fragments = 1,
           wire::Opcode opcode = wire::Opcode::kRcSendOnly);

  std::span<io::TxPacket> packets() { return packets_; }
  size_t size() const { return packets_.size(); }
  const std::vector<uint8_t>& payload(size_t i) const { return contents_[i]->payload; }

  // The packet with this index has arrived, byte for byte and with a right ICRC.
  void expect_arrived(size_t index, const RxPacket& received) const;

 private:
  struct Content {
    wire::Envelope envelope;
    wire::Bth bth;
    std::vector<uint8_t> payload;
  };
  std::vector<std::unique_ptr<Content>> contents_;
  std::vector<io::TxPacket> packets_;
};

// The PSN of a received packet that can be parsed.
uint32_t psn_of(const RxPacket& received);

}  // namespace uroce::io::test

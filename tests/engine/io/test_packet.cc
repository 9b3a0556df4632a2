// SPDX-License-Identifier: BSD-2-Clause
#include "tests/engine/io/test_packet.h"

#include <random>

#include "wire/format.h"
#include "wire/icrc.h"

namespace uroce::io::test {

void TestBurst::add(const wire::Envelope& envelope, uint32_t psn, size_t size, size_t fragments, wire::Opcode opcode) {
  auto content = std::make_unique<Content>();
  content->envelope = envelope;
  content->bth.opcode = opcode;
  content->bth.dest_qp = wire::Qpn(0x1234);
  content->bth.psn = wire::Psn(psn);
  content->bth.pad = static_cast<uint8_t>((4 - size % 4) % 4);
  content->payload.resize(size);
  std::mt19937 random(psn);
  for (uint8_t& byte : content->payload) byte = static_cast<uint8_t>(random());

  io::TxPacket packet;
  packet.envelope = &content->envelope;
  packet.payload_size = static_cast<uint32_t>(size);
  packet.header_size = wire::Bth::kSize;
  packet.pad = content->bth.pad;
  content->bth.emit(packet.header.data());
  size_t offset = 0;
  for (size_t i = 0; i < fragments; ++i) {
    const size_t end = size * (i + 1) / fragments;
    packet.fragments[i] = {content->payload.data() + offset, static_cast<uint32_t>(end - offset)};
    offset = end;
  }
  packet.fragment_count = static_cast<uint8_t>(fragments);
  packets_.push_back(packet);
  contents_.push_back(std::move(content));
}

void TestBurst::expect_arrived(size_t index, const RxPacket& received) const {
  const Content& content = *contents_.at(index);
  SCOPED_TRACE(wire::format_packet(received.envelope, received.ib));
  EXPECT_TRUE(wire::icrc_matches(received.envelope, received.ib));
  EXPECT_FALSE(received.without_icrc);
  EXPECT_TRUE(received.apart.empty());
  EXPECT_EQ(received.faults, 0);
  EXPECT_EQ(received.psns, 1u);
  EXPECT_EQ(received.source_qpn, wire::Qpn{});
  EXPECT_EQ(received.reason, SendReason::kFirst);
  EXPECT_EQ(received.envelope.source.text(), content.envelope.source.text());
  EXPECT_EQ(received.envelope.destination.text(), content.envelope.destination.text());
  EXPECT_EQ(received.envelope.traffic_class, content.envelope.traffic_class);
  EXPECT_EQ(received.envelope.hop_limit, content.envelope.hop_limit);
  wire::Packet packet;
  ASSERT_EQ(wire::parse_packet(received.ib, packet), wire::ParseError::kNone);
  EXPECT_EQ(packet.bth, content.bth);
  EXPECT_TRUE(std::equal(packet.payload.begin(), packet.payload.end(), content.payload.begin(), content.payload.end()))
      << "payload differs, " << packet.payload.size() << " bytes instead of " << content.payload.size();
}

uint32_t psn_of(const RxPacket& received) {
  wire::Packet packet;
  const wire::ParseError error = received.apart.empty() ? wire::parse_packet(received.ib, packet)
                                                        : wire::parse_packet(received.ib, received.apart, packet);
  EXPECT_EQ(error, wire::ParseError::kNone);
  return packet.bth.psn.value();
}

}  // namespace uroce::io::test

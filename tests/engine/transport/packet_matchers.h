// SPDX-License-Identifier: BSD-2-Clause
// What a test may say about a packet that a QP gave out: gMock matchers that name one fact each, and combinations of
// them for the packets that the rules speak of. Of one type, so that each is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <gmock/gmock.h>
#include <iosfwd>

#include "engine/io/send_reason.h"
#include "tests/engine/transport/peer_packet.h"
#include "wire/packet.h"

namespace uroce::transport::test {

// A packet made bytes and parsed again: headers as the peer sees them. `headers.payload` is empty, `payload` holds it.
struct SentPacket {
  wire::Packet headers;
  Bytes payload;
  io::SendReason reason = io::SendReason::kFirst;
};

void PrintTo(const SentPacket& packet, std::ostream* out);

using PacketMatcher = testing::Matcher<const SentPacket&>;

PacketMatcher HasOpcode(wire::Opcode opcode);
PacketMatcher HasPsn(uint32_t psn);
PacketMatcher HasPayload(const Bytes& bytes);
PacketMatcher HasPayloadSize(size_t size);
PacketMatcher HasPad(uint8_t pad);
PacketMatcher AsksForAck();
PacketMatcher IsSolicited();
PacketMatcher HasReth(uint64_t va, uint32_t rkey, uint32_t length);
PacketMatcher HasImmediate(uint32_t value);
PacketMatcher HasIeth(uint32_t rkey);
PacketMatcher HasSyndrome(uint8_t syndrome);
PacketMatcher HasAckSyndrome();
PacketMatcher HasCredits(uint32_t count);
PacketMatcher HasMsn(uint32_t msn);

PacketMatcher IsAck(uint32_t psn);
PacketMatcher IsNak(wire::NakCode code, uint32_t psn);
PacketMatcher IsRnrNak(uint32_t psn, uint8_t timer);
PacketMatcher IsRequest(wire::Opcode opcode, uint32_t psn);
PacketMatcher IsRequest(wire::Opcode opcode, uint32_t psn, const Bytes& payload);
PacketMatcher IsReadRequest(uint32_t psn, uint64_t va, uint32_t length);
PacketMatcher IsReadResponse(wire::Opcode opcode, uint32_t psn, const Bytes& payload);
PacketMatcher IsAtomicResponse(uint32_t psn, uint64_t original);

}  // namespace uroce::transport::test

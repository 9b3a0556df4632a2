// What a test may say about a packet that a QP gave out: gMock matchers that name one fact each, and combinations of
// them for the packets that the rules speak of.
#pragma once

#include <cstdint>
#include <gmock/gmock.h>
#include <ostream>

#include "tests/engine/transport/peer_packet.h"
#include "wire/packet.h"
#include "wire/send_reason.h"

namespace uroce::transport::test {

// A packet made bytes and parsed again: headers as the peer sees them. `headers.payload` is empty, `payload` holds it.
struct SentPacket {
  wire::Packet headers;
  Bytes payload;
  wire::SendReason reason = wire::SendReason::kFirst;
};

inline void PrintTo(const SentPacket& packet, std::ostream* out) {
  const wire::Packet& h = packet.headers;
  *out << h.info->name << " psn " << h.bth.psn.value() << " length " << packet.payload.size();
  if (h.bth.ack_request) *out << " ack";
  if (h.bth.solicited) *out << " se";
  if (h.info->has_reth) *out << " va " << h.reth.va << " rkey " << h.reth.rkey << " dmalen " << h.reth.length;
  if (h.info->has_aeth) *out << " syndrome " << int{h.aeth.syndrome} << " msn " << h.aeth.msn.value();
}

MATCHER_P(HasOpcode, opcode, wire::opcode_info(opcode).name) {
  return arg.headers.bth.opcode == opcode;
}
MATCHER_P(HasPsn, psn, "psn " + testing::PrintToString(psn)) {
  return arg.headers.bth.psn == wire::Psn(static_cast<uint32_t>(psn));
}
MATCHER_P(HasPayload, bytes, "payload of " + testing::PrintToString(bytes.size())) {
  return arg.payload == bytes;
}
MATCHER_P(HasPayloadSize, size, "") {
  return arg.payload.size() == size;
}
MATCHER_P(HasPad, pad, "") {
  return arg.headers.bth.pad == pad;
}
MATCHER(AsksForAck, "") {
  return arg.headers.bth.ack_request;
}
MATCHER(IsSolicited, "") {
  return arg.headers.bth.solicited;
}
MATCHER_P3(HasReth, va, rkey, length, "") {
  return arg.headers.info->has_reth &&
         arg.headers.reth ==
             wire::Reth{static_cast<uint64_t>(va), static_cast<uint32_t>(rkey), static_cast<uint32_t>(length)};
}
MATCHER_P(HasImmediate, value, "") {
  return arg.headers.info->has_immdt && arg.headers.immdt.network_value == static_cast<uint32_t>(value);
}
MATCHER_P(HasIeth, rkey, "") {
  return arg.headers.info->has_ieth && arg.headers.ieth.rkey == static_cast<uint32_t>(rkey);
}
MATCHER_P(HasSyndrome, syndrome, "syndrome " + testing::PrintToString(int{syndrome})) {
  return arg.headers.info->has_aeth && arg.headers.aeth.syndrome == syndrome;
}
MATCHER(HasAckSyndrome, "positive acknowledgement, any credits") {
  return arg.headers.info->has_aeth && arg.headers.aeth.kind() == wire::AethKind::kAck;
}
MATCHER_P(HasCredits, count, "credits " + testing::PrintToString(count)) {
  return arg.headers.info->has_aeth && arg.headers.aeth.kind() == wire::AethKind::kAck &&
         wire::credit_count(arg.headers.aeth.value()) == static_cast<uint32_t>(count);
}
MATCHER_P(HasMsn, msn, "msn " + testing::PrintToString(msn)) {
  return arg.headers.info->has_aeth && arg.headers.aeth.msn == wire::Msn(static_cast<uint32_t>(msn));
}

inline auto IsAck(uint32_t psn) {
  return testing::AllOf(HasOpcode(wire::Opcode::kRcAcknowledge), HasPsn(psn), HasAckSyndrome());
}
inline auto IsNak(wire::NakCode code, uint32_t psn) {
  return testing::AllOf(HasOpcode(wire::Opcode::kRcAcknowledge), HasPsn(psn),
                        HasSyndrome(static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code))));
}
inline auto IsRnrNak(uint32_t psn, uint8_t timer) {
  return testing::AllOf(HasOpcode(wire::Opcode::kRcAcknowledge), HasPsn(psn),
                        HasSyndrome(static_cast<uint8_t>(0x20 | timer)));
}
inline auto IsRequest(wire::Opcode opcode, uint32_t psn) {
  return testing::AllOf(HasOpcode(opcode), HasPsn(psn));
}
inline auto IsRequest(wire::Opcode opcode, uint32_t psn, const Bytes& payload) {
  return testing::AllOf(HasOpcode(opcode), HasPsn(psn), HasPayload(payload),
                        HasPad(static_cast<uint8_t>(-payload.size() & 3)));
}
MATCHER_P3(IsReadRequest, psn, va, length, "") {
  return arg.headers.bth.opcode == wire::Opcode::kRcReadRequest && arg.headers.bth.psn == wire::Psn(psn) &&
         arg.headers.reth.va == va && arg.headers.reth.length == static_cast<uint32_t>(length);
}
inline auto IsReadResponse(wire::Opcode opcode, uint32_t psn, const Bytes& payload) {
  return IsRequest(opcode, psn, payload);
}
MATCHER_P2(IsAtomicResponse, psn, original, "") {
  return arg.headers.bth.opcode == wire::Opcode::kRcAtomicAcknowledge && arg.headers.bth.psn == wire::Psn(psn) &&
         arg.headers.aeth.kind() == wire::AethKind::kAck && arg.headers.atomic_ack_eth.original == original;
}

}  // namespace uroce::transport::test

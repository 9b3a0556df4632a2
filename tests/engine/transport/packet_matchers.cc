// SPDX-License-Identifier: BSD-2-Clause
#include "tests/engine/transport/packet_matchers.h"

#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>

namespace uroce::transport::test {
namespace {

using testing::AllOf;
using wire::AethKind;
using wire::Opcode;

class Fact final : public testing::MatcherInterface<const SentPacket&> {
 public:
  Fact(std::string words, std::function<bool(const SentPacket&)> holds)
      : words_(std::move(words)), holds_(std::move(holds)) {}

  bool MatchAndExplain(const SentPacket& packet, testing::MatchResultListener*) const override {
    return holds_(packet);
  }
  void DescribeTo(std::ostream* out) const override { *out << words_; }
  void DescribeNegationTo(std::ostream* out) const override { *out << "not " << words_; }

 private:
  const std::string words_;
  const std::function<bool(const SentPacket&)> holds_;
};

PacketMatcher packet_fact(std::string words, std::function<bool(const SentPacket&)> holds) {
  return testing::MakeMatcher(new Fact(std::move(words), std::move(holds)));
}

std::string numbers(const char* word, std::initializer_list<uint64_t> values) {
  std::string words = word;
  for (const uint64_t value : values) words += ' ' + std::to_string(value);
  return words;
}

bool has_kind(const SentPacket& packet, AethKind kind) {
  return packet.headers.info->has_aeth && packet.headers.aeth.kind() == kind;
}

}  // namespace

void PrintTo(const SentPacket& packet, std::ostream* out) {
  const wire::Packet& h = packet.headers;
  *out << h.info->name << " psn " << h.bth.psn.value() << " length " << packet.payload.size();
  if (h.bth.ack_request) *out << " ack";
  if (h.bth.solicited) *out << " se";
  if (h.info->has_reth) *out << " va " << h.reth.va << " rkey " << h.reth.rkey << " dmalen " << h.reth.length;
  if (h.info->has_aeth) *out << " syndrome " << int{h.aeth.syndrome} << " msn " << h.aeth.msn.value();
}

PacketMatcher HasOpcode(Opcode opcode) {
  return packet_fact(wire::opcode_info(opcode).name, [=](const auto& p) { return p.headers.bth.opcode == opcode; });
}
PacketMatcher HasPsn(uint32_t psn) {
  return packet_fact(numbers("psn", {psn}), [=](const auto& p) { return p.headers.bth.psn == wire::Psn(psn); });
}
PacketMatcher HasPayload(const Bytes& bytes) {
  return packet_fact(numbers("payload of size", {bytes.size()}), [=](const auto& p) { return p.payload == bytes; });
}
PacketMatcher HasPayloadSize(size_t size) {
  return packet_fact(numbers("payload size", {size}), [=](const auto& p) { return p.payload.size() == size; });
}
PacketMatcher HasPad(uint8_t pad) {
  return packet_fact(numbers("pad", {pad}), [=](const auto& p) { return p.headers.bth.pad == pad; });
}
PacketMatcher AsksForAck() {
  return packet_fact("asks for an ACK", [](const auto& p) { return p.headers.bth.ack_request; });
}
PacketMatcher IsSolicited() {
  return packet_fact("solicited", [](const auto& p) { return p.headers.bth.solicited; });
}
PacketMatcher HasReth(uint64_t va, uint32_t rkey, uint32_t length) {
  return packet_fact(numbers("va, rkey, dmalen", {va, rkey, length}), [=](const auto& p) {
    return p.headers.info->has_reth && p.headers.reth == wire::Reth{va, rkey, length};
  });
}
PacketMatcher HasImmediate(uint32_t value) {
  return packet_fact(numbers("immediate", {value}), [=](const auto& p) {
    return p.headers.info->has_immdt && p.headers.immdt.network_value == value;
  });
}
PacketMatcher HasIeth(uint32_t rkey) {
  return packet_fact(numbers("rkey to invalidate", {rkey}),
                     [=](const auto& p) { return p.headers.info->has_ieth && p.headers.ieth.rkey == rkey; });
}
PacketMatcher HasSyndrome(uint8_t syndrome) {
  return packet_fact(numbers("syndrome", {syndrome}),
                     [=](const auto& p) { return p.headers.info->has_aeth && p.headers.aeth.syndrome == syndrome; });
}
PacketMatcher HasAckSyndrome() {
  return packet_fact("positive acknowledgement, any credits",
                     [](const auto& p) { return has_kind(p, AethKind::kAck); });
}
PacketMatcher HasCredits(uint32_t count) {
  return packet_fact(numbers("credits", {count}), [=](const auto& p) {
    return has_kind(p, AethKind::kAck) && wire::credit_count(p.headers.aeth.value()) == count;
  });
}
PacketMatcher HasMsn(uint32_t msn) {
  return packet_fact(numbers("msn", {msn}),
                     [=](const auto& p) { return p.headers.info->has_aeth && p.headers.aeth.msn == wire::Msn(msn); });
}

PacketMatcher IsAck(uint32_t psn) {
  return AllOf(HasOpcode(Opcode::kRcAcknowledge), HasPsn(psn), HasAckSyndrome());
}
PacketMatcher IsNak(wire::NakCode code, uint32_t psn) {
  return AllOf(HasOpcode(Opcode::kRcAcknowledge), HasPsn(psn),
               HasSyndrome(static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code))));
}
PacketMatcher IsRnrNak(uint32_t psn, uint8_t timer) {
  return AllOf(HasOpcode(Opcode::kRcAcknowledge), HasPsn(psn), HasSyndrome(static_cast<uint8_t>(0x20 | timer)));
}
PacketMatcher IsRequest(Opcode opcode, uint32_t psn) {
  return AllOf(HasOpcode(opcode), HasPsn(psn));
}
PacketMatcher IsRequest(Opcode opcode, uint32_t psn, const Bytes& payload) {
  return AllOf(HasOpcode(opcode), HasPsn(psn), HasPayload(payload), HasPad(static_cast<uint8_t>(-payload.size() & 3)));
}
PacketMatcher IsReadRequest(uint32_t psn, uint64_t va, uint32_t length) {
  return AllOf(IsRequest(Opcode::kRcReadRequest, psn),
               packet_fact(numbers("va, dmalen", {va, length}),
                           [=](const auto& p) { return p.headers.reth.va == va && p.headers.reth.length == length; }));
}
PacketMatcher IsReadResponse(Opcode opcode, uint32_t psn, const Bytes& payload) {
  return IsRequest(opcode, psn, payload);
}
PacketMatcher IsAtomicResponse(uint32_t psn, uint64_t original) {
  return AllOf(IsRequest(Opcode::kRcAtomicAcknowledge, psn),
               packet_fact(numbers("original", {original}), [=](const auto& p) {
                 return p.headers.aeth.kind() == AethKind::kAck && p.headers.atomic_ack_eth.original == original;
               }));
}

}  // namespace uroce::transport::test

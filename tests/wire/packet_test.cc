// SPDX-License-Identifier: BSD-2-Clause
#include "wire/packet.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "tests/wire/hex.h"

namespace uroce::wire {
namespace {

std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> opcodes;
  for (int i = 0; i < 256; ++i) {
    if (opcode_info(static_cast<Opcode>(i)).known) opcodes.push_back(static_cast<Opcode>(i));
  }
  return opcodes;
}

// A packet whose extension headers are the bytes 0x10, 0x11, ..., then payload_size bytes, pad and an ICRC.
std::vector<uint8_t> make_packet(Opcode opcode, size_t payload_size = 0, uint8_t pad = 0) {
  const OpcodeInfo& info = opcode_info(opcode);
  std::vector<uint8_t> bytes(info.header_size + payload_size + pad + kIcrcSize, 0xcc);
  Bth{.opcode = opcode, .pad = pad, .dest_qp = Qpn(0x123456), .psn = Psn(0xabcdef)}.emit(bytes.data());
  std::iota(bytes.begin() + Bth::kSize, bytes.begin() + info.header_size, uint8_t{0x10});
  std::fill_n(bytes.begin() + info.header_size, payload_size, uint8_t{0x5a});
  return bytes;
}

ParseError parse(const std::vector<uint8_t>& bytes) {
  Packet packet;
  return parse_packet(bytes, packet);
}

TEST(ParsePacket, EveryOpcodeCutAtEveryByte) {
  for (const Opcode opcode : known_opcodes()) {
    SCOPED_TRACE(opcode_info(opcode).name);
    const std::vector<uint8_t> whole = make_packet(opcode);
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::vector<uint8_t> cut(whole.begin(),
                                     whole.begin() + static_cast<ptrdiff_t>(size));  // ASan guards its end
      EXPECT_EQ(parse(cut), ParseError::kTruncated) << size;
    }
    EXPECT_EQ(parse(whole), ParseError::kNone);
  }
}

// The headers in one place and the rest in another: taken where they are parted behind the headers.
TEST(ParsePacket, PayloadThatLiesApart) {
  for (const Opcode opcode : known_opcodes()) {
    SCOPED_TRACE(opcode_info(opcode).name);
    const bool has_payload = opcode_info(opcode).has_payload;
    const std::vector<uint8_t> whole = make_packet(opcode, has_payload ? 5 : 0, has_payload ? 3 : 0);
    Packet in_one, parted;
    ASSERT_EQ(parse_packet(whole, in_one), ParseError::kNone);
    for (size_t size = 0; size <= whole.size(); ++size) {
      const auto at = whole.begin() + static_cast<ptrdiff_t>(size);
      const std::vector<uint8_t> headers(whole.begin(), at), rest(at, whole.end());  // ASan guards their ends
      const bool fits = size == opcode_info(opcode).header_size;
      ASSERT_EQ(parse_packet(headers, rest, parted), fits ? ParseError::kNone : ParseError::kTruncated) << size;
      if (!fits) continue;
      EXPECT_EQ(parted.bth.psn, in_one.bth.psn);
      EXPECT_EQ(std::vector<uint8_t>(parted.payload.begin(), parted.payload.end()),
                std::vector<uint8_t>(in_one.payload.begin(), in_one.payload.end()));
    }
  }
}

TEST(ParsePacket, LengthsOfWhatLiesApart) {
  const std::vector<uint8_t> headers = make_packet(Opcode::kRcSendMiddle, 0, 3);
  const std::span<const uint8_t> front = std::span(headers).first(Bth::kSize);
  Packet packet;
  for (size_t size = 0; size < 7; ++size) {
    const ParseError error = parse_packet(front, std::vector<uint8_t>(size), packet);
    EXPECT_EQ(error, size < 4 ? ParseError::kTruncated : ParseError::kPadExceedsPayload) << size;
  }
  EXPECT_EQ(parse_packet(front, std::vector<uint8_t>(7), packet), ParseError::kNone);
}

TEST(ParsePacket, All256Opcodes) {
  for (int i = 0; i < 256; ++i) {
    std::vector<uint8_t> bytes = hex("0000ffff 00000001 00000000 00000000");
    bytes[0] = static_cast<uint8_t>(i);
    bytes.resize(60);
    Packet packet;
    const ParseError error = parse_packet(bytes, packet);
    EXPECT_EQ(packet.bth.opcode, static_cast<Opcode>(i));
    const OpcodeInfo& info = opcode_info(static_cast<Opcode>(i));
    EXPECT_EQ(error, !info.known         ? ParseError::kUnknownOpcode
                     : !info.has_payload ? ParseError::kUnexpectedPayload
                                         : ParseError::kNone)
        << i;
  }
}

TEST(ParsePacket, HeadersComeInTheOrderOfTheWire) {
  const std::vector<uint8_t> write = make_packet(Opcode::kXrcWriteOnlyImmediate, 1);  // XRCETH RETH ImmDt
  Packet p;
  ASSERT_EQ(parse_packet(write, p), ParseError::kNone);
  EXPECT_EQ(p.info, &opcode_info(Opcode::kXrcWriteOnlyImmediate));
  EXPECT_EQ(p.bth.dest_qp, Qpn(0x123456));
  EXPECT_EQ(p.bth.psn, Psn(0xabcdef));
  EXPECT_EQ(p.xrceth.srqn, 0x111213u);
  EXPECT_EQ(p.reth.va, 0x1415161718191a1bu);
  EXPECT_EQ(p.reth.rkey, 0x1c1d1e1fu);
  EXPECT_EQ(p.reth.length, 0x20212223u);
  EXPECT_EQ(p.immdt, ImmDt::parse(ImmDtView::at(hex("24252627").data())));

  const std::vector<uint8_t> atomic = make_packet(Opcode::kXrcCompareSwap);  // XRCETH AtomicETH
  ASSERT_EQ(parse_packet(atomic, p), ParseError::kNone);
  EXPECT_EQ(p.xrceth.srqn, 0x111213u);
  EXPECT_EQ(p.atomic_eth.va, 0x1415161718191a1bu);
  EXPECT_EQ(p.atomic_eth.compare, 0x28292a2b2c2d2e2fu);

  const std::vector<uint8_t> answer = make_packet(Opcode::kRcAtomicAcknowledge);  // AETH AtomicAckETH
  ASSERT_EQ(parse_packet(answer, p), ParseError::kNone);
  EXPECT_EQ(p.aeth.syndrome, 0x10);
  EXPECT_EQ(p.aeth.msn, Msn(0x111213));
  EXPECT_EQ(p.atomic_ack_eth.original, 0x1415161718191a1bu);

  const std::vector<uint8_t> datagram = make_packet(Opcode::kUdSendOnlyImmediate);  // DETH ImmDt
  ASSERT_EQ(parse_packet(datagram, p), ParseError::kNone);
  EXPECT_EQ(p.deth.qkey, 0x10111213u);
  EXPECT_EQ(p.deth.source_qp, Qpn(0x151617));
  EXPECT_EQ(p.immdt, ImmDt::parse(ImmDtView::at(hex("18191a1b").data())));

  const std::vector<uint8_t> flush = make_packet(Opcode::kRcFlush);  // FETH RETH
  ASSERT_EQ(parse_packet(flush, p), ParseError::kNone);
  EXPECT_EQ(p.feth.placement_type, 0x3);
  EXPECT_EQ(p.feth.selectivity, 0x1);
  EXPECT_EQ(p.reth.va, 0x1415161718191a1bu);

  const std::vector<uint8_t> invalidate = make_packet(Opcode::kRcSendOnlyInvalidate);
  ASSERT_EQ(parse_packet(invalidate, p), ParseError::kNone);
  EXPECT_EQ(p.ieth.rkey, 0x10111213u);
}

TEST(ParsePacket, HeadersTheOpcodeLacksAreLeftAlone) {
  Packet p;
  ASSERT_EQ(parse_packet(make_packet(Opcode::kRcReadRequest), p), ParseError::kNone);
  const Reth reth = p.reth;
  ASSERT_EQ(parse_packet(make_packet(Opcode::kRcAcknowledge), p), ParseError::kNone);
  EXPECT_EQ(p.reth, reth);
}

TEST(ParsePacket, PayloadIsWithoutPadAndIcrc) {
  for (const Opcode opcode : known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    if (!info.has_payload) continue;
    for (size_t size = 0; size <= 9; ++size) {
      const auto pad = static_cast<uint8_t>(-size & 3);
      const std::vector<uint8_t> bytes = make_packet(opcode, size, pad);
      Packet p;
      ASSERT_EQ(parse_packet(bytes, p), ParseError::kNone);
      EXPECT_EQ(p.payload.data(), bytes.data() + info.header_size);
      EXPECT_EQ(p.payload.size(), size);
      for (const uint8_t byte : p.payload) EXPECT_EQ(byte, 0x5a);
    }
  }
}

TEST(ParsePacket, PadMayNotReachIntoTheHeaders) {
  for (uint8_t pad = 1; pad <= 3; ++pad) {
    std::vector<uint8_t> bytes = make_packet(Opcode::kRcSendOnly, pad - 1u);
    bytes[1] = static_cast<uint8_t>(pad << 4);
    EXPECT_EQ(parse(bytes), ParseError::kPadExceedsPayload);
    bytes.push_back(0);
    EXPECT_EQ(parse(bytes), ParseError::kNone);
  }
}

TEST(ParsePacket, PayloadOnlyWhereTheOpcodeHasSome) {
  EXPECT_EQ(parse(make_packet(Opcode::kRcAcknowledge, 4)), ParseError::kUnexpectedPayload);
  EXPECT_EQ(parse(make_packet(Opcode::kRcReadRequest, 1, 3)), ParseError::kUnexpectedPayload);
  EXPECT_EQ(parse(make_packet(Opcode::kCnp, 1)), ParseError::kUnexpectedPayload);
  EXPECT_EQ(parse(make_packet(Opcode::kRcAtomicWrite, 8)), ParseError::kNone);
}

TEST(ParsePacket, ChecksOpcodeThenVersionThenLength) {
  std::vector<uint8_t> bytes = make_packet(Opcode::kRcReadRequest);
  bytes.resize(16);
  bytes[1] = 0x31;  // TVer 1, pad 3
  EXPECT_EQ(parse(bytes), ParseError::kBadTver);
  bytes[1] = 0x30;
  EXPECT_EQ(parse(bytes), ParseError::kTruncated);
  bytes[1] = 0x31;
  bytes[0] = 0x15;
  EXPECT_EQ(parse(bytes), ParseError::kUnknownOpcode);
  bytes.resize(15);
  EXPECT_EQ(parse(bytes), ParseError::kTruncated);
}

TEST(ParsePacket, EveryErrorHasAText) {
  for (int error = 0; error <= static_cast<int>(ParseError::kUnexpectedPayload); ++error) {
    EXPECT_GT(std::string(parse_error_text(static_cast<ParseError>(error))).size(), 1u);
  }
}

}  // namespace
}  // namespace uroce::wire

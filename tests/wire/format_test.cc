// SPDX-License-Identifier: BSD-2-Clause
#include "wire/format.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/wire/hex.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

const Envelope kEnvelope{.source = IpAddress::v4(hex("0a000001").data()),
                         .destination = IpAddress::v4(hex("0a000002").data()),
                         .source_port = 0xc000};

// The line for BTH, `extensions` and payload, without the addresses; with a right ICRC.
std::string format(const Bth& bth, std::vector<uint8_t> extensions, size_t payload_size = 0) {
  std::vector<uint8_t> ib(12);
  bth.emit(ib.data());
  ib.insert(ib.end(), extensions.begin(), extensions.end());
  ib.resize(ib.size() + payload_size);
  const uint32_t value = icrc(kEnvelope, ib);
  ib.resize(ib.size() + 4);
  store_le32(&ib[ib.size() - 4], value);
  const std::string line = format_packet(kEnvelope, ib);
  const std::string addresses = "10.0.0.1 > 10.0.0.2 ";
  EXPECT_EQ(line.substr(0, addresses.size()), addresses);
  return line.substr(addresses.size());
}

Bth bth(Opcode opcode) {
  return {.opcode = opcode, .dest_qp = Qpn(0x123), .psn = Psn(4711)};
}

TEST(FormatPacket, Write) {
  Bth header = bth(Opcode::kRcWriteFirst);
  header.ack_request = header.solicited = true;
  EXPECT_EQ(format(header, hex("00007f0000001000 00001234 00010000"), 1024),
            "RC RDMA_WRITE_FIRST qp 0x000123 psn 4711 ack se len 1024 va 0x7f0000001000 rkey 0x1234 dmalen 65536");
}

TEST(FormatPacket, Acknowledge) {
  const Bth header = bth(Opcode::kRcAcknowledge);
  EXPECT_EQ(format(header, hex("0a000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 ACK credits 32 msn 7");
  EXPECT_EQ(format(header, hex("1f000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 ACK credits none msn 7");
  EXPECT_EQ(format(header, hex("2c000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 RNR NAK 0.64 ms msn 7");
  EXPECT_EQ(format(header, hex("60000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 NAK PSN sequence error msn 7");
  EXPECT_EQ(format(header, hex("62000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 NAK remote access error msn 7");
  EXPECT_EQ(format(header, hex("65000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 NAK code 5 msn 7");
  EXPECT_EQ(format(header, hex("80000007")), "RC ACKNOWLEDGE qp 0x000123 psn 4711 AETH syndrome 0x80 msn 7");
}

TEST(FormatPacket, Atomics) {
  const auto eth = hex("00007f0000001000 00001234 0000000000000005 0000000000000006");
  EXPECT_EQ(format(bth(Opcode::kRcCompareSwap), eth),
            "RC COMPARE_SWAP qp 0x000123 psn 4711 va 0x7f0000001000 rkey 0x1234 swap 0x5 compare 0x6");
  EXPECT_EQ(format(bth(Opcode::kRcFetchAdd), eth),
            "RC FETCH_ADD qp 0x000123 psn 4711 va 0x7f0000001000 rkey 0x1234 add 0x5");
  EXPECT_EQ(format(bth(Opcode::kRcAtomicAcknowledge), hex("1f000007 00000000deadbeef")),
            "RC ATOMIC_ACKNOWLEDGE qp 0x000123 psn 4711 ACK credits none msn 7 original 0xdeadbeef");
}

TEST(FormatPacket, DatagramXrcAndTheRest) {
  EXPECT_EQ(format(bth(Opcode::kUdSendOnlyImmediate), hex("11111111 00000042 81000001"), 8),
            "UD SEND_ONLY_IMMEDIATE qp 0x000123 psn 4711 len 8 from qp 0x000042 qkey 0x11111111 imm 0x81000001");
  EXPECT_EQ(format(bth(Opcode::kXrcSendOnlyInvalidate), hex("00000055 00001234")),
            "XRC SEND_ONLY_INVALIDATE qp 0x000123 psn 4711 len 0 srq 0x000055 invalidate rkey 0x1234");
  EXPECT_EQ(format(bth(Opcode::kRcFlush), hex("00000012 0000000000001000 00001234 00000010")),
            "RC FLUSH qp 0x000123 psn 4711 flush type 2 selectivity 1 va 0x1000 rkey 0x1234 dmalen 16");
  Bth cnp = bth(Opcode::kCnp);
  cnp.becn = true;
  EXPECT_EQ(format(cnp, std::vector<uint8_t>(16, 0)), "CNP qp 0x000123 psn 4711 becn");
  Bth send = bth(Opcode::kUcSendOnly);
  send.pkey = 0x8001;
  send.fecn = true;
  EXPECT_EQ(format(send, {}), "UC SEND_ONLY qp 0x000123 psn 4711 fecn pkey 0x8001 len 0");
}

TEST(FormatPacket, SaysWhatIsMalformed) {
  EXPECT_EQ(format(bth(Opcode{0x15}), {}), "opcode 0x15 qp 0x000123 psn 4711 malformed: unknown opcode (16 bytes)");
  EXPECT_EQ(format(bth(Opcode::kRcReadRequest), hex("00000000")),
            "RC RDMA_READ_REQUEST qp 0x000123 psn 4711 malformed: truncated (20 bytes)");
  EXPECT_EQ(format_packet(kEnvelope, hex("0400ffff")), "10.0.0.1 > 10.0.0.2 malformed: truncated (4 bytes)");
  EXPECT_EQ(format_packet(kEnvelope, {}), "10.0.0.1 > 10.0.0.2 malformed: truncated (0 bytes)");
}

TEST(FormatPacket, SaysThatTheIcrcIsBad) {
  std::vector<uint8_t> ib(16);
  bth(Opcode::kRcSendOnly).emit(ib.data());
  EXPECT_EQ(format_packet(kEnvelope, ib), "10.0.0.1 > 10.0.0.2 RC SEND_ONLY qp 0x000123 psn 4711 len 0 ICRC bad");
}

TEST(FormatPacket, TakesAnyBytes) {  // ASan guards the ends of the exact allocations
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes(random() % 100);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (bytes.size() > 1) bytes[1] &= 0xf0;  // TVer 0, to get further
    const std::string line = format_packet(kEnvelope, bytes);
    EXPECT_EQ(line.find("10.0.0.1 > 10.0.0.2 "), 0u);
    EXPECT_EQ(line.find("ICRC bad") != std::string::npos, bytes.size() >= 16) << line;
  }
}

}  // namespace
}  // namespace uroce::wire

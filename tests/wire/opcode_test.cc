// SPDX-License-Identifier: BSD-2-Clause
#include "wire/opcode.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace uroce::wire {
namespace {

struct Expected {
  const char* name;
  unsigned extensions;  // bytes after the BTH, without XRCETH and DETH
  bool payload;
  const char* position;  // F M L O
  bool request;
};

// Written down from wire.md, not derived from the table under test: operation code, bytes, position.
const std::map<int, Expected> kReliable = {
    {0x00, {"SEND_FIRST", 0, true, "F", true}},
    {0x01, {"SEND_MIDDLE", 0, true, "M", true}},
    {0x02, {"SEND_LAST", 0, true, "L", true}},
    {0x03, {"SEND_LAST_IMMEDIATE", 4, true, "L", true}},
    {0x04, {"SEND_ONLY", 0, true, "O", true}},
    {0x05, {"SEND_ONLY_IMMEDIATE", 4, true, "O", true}},
    {0x06, {"RDMA_WRITE_FIRST", 16, true, "F", true}},
    {0x07, {"RDMA_WRITE_MIDDLE", 0, true, "M", true}},
    {0x08, {"RDMA_WRITE_LAST", 0, true, "L", true}},
    {0x09, {"RDMA_WRITE_LAST_IMMEDIATE", 4, true, "L", true}},
    {0x0a, {"RDMA_WRITE_ONLY", 16, true, "O", true}},
    {0x0b, {"RDMA_WRITE_ONLY_IMMEDIATE", 20, true, "O", true}},
    {0x0c, {"RDMA_READ_REQUEST", 16, false, "O", true}},
    {0x0d, {"RDMA_READ_RESPONSE_FIRST", 4, true, "F", false}},
    {0x0e, {"RDMA_READ_RESPONSE_MIDDLE", 0, true, "M", false}},
    {0x0f, {"RDMA_READ_RESPONSE_LAST", 4, true, "L", false}},
    {0x10, {"RDMA_READ_RESPONSE_ONLY", 4, true, "O", false}},
    {0x11, {"ACKNOWLEDGE", 4, false, "O", false}},
    {0x12, {"ATOMIC_ACKNOWLEDGE", 12, false, "O", false}},
    {0x13, {"COMPARE_SWAP", 28, false, "O", true}},
    {0x14, {"FETCH_ADD", 28, false, "O", true}},
    {0x16, {"SEND_LAST_INVALIDATE", 4, true, "L", true}},
    {0x17, {"SEND_ONLY_INVALIDATE", 4, true, "O", true}},
    {0x1c, {"FLUSH", 20, false, "O", true}},
    {0x1d, {"ATOMIC_WRITE", 16, true, "O", true}},
};

// Which operations a transport has.
bool exists(int opcode) {
  const int operation = opcode & 0x1f;
  switch (opcode & 0xe0) {
    case 0x00:
      return kReliable.contains(operation);
    case 0x20:
      return operation <= 0x0b;
    case 0x60:
      return operation == 0x04 || operation == 0x05;
    case 0xa0:
      return operation <= 0x17 && kReliable.contains(operation);
    default:
      return false;
  }
}

TEST(Opcode, All256) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    SCOPED_TRACE(opcode);
    const OpcodeInfo& info = opcode_info(static_cast<Opcode>(opcode));
    if (opcode == 0x81) continue;  // CNP: below
    ASSERT_EQ(info.known, exists(opcode));
    if (!info.known) continue;

    const Expected& expected = kReliable.at(opcode & 0x1f);
    const char position = expected.position[0];
    const bool xrc = (opcode & 0xe0) == 0xa0, ud = (opcode & 0xe0) == 0x60;
    EXPECT_STREQ(info.name, expected.name);
    EXPECT_EQ(info.header_size, 12 + expected.extensions + (xrc && expected.request ? 4 : 0) + (ud ? 8 : 0));
    EXPECT_EQ(info.has_payload, expected.payload);
    EXPECT_EQ(info.request, expected.request);
    EXPECT_EQ(info.first, position == 'F' || position == 'O');
    EXPECT_EQ(info.last, position == 'L' || position == 'O');
    EXPECT_EQ(info.has_xrceth, xrc && expected.request);
    EXPECT_EQ(info.has_deth, ud);
    const Transport transports[] = {Transport::kRc, Transport::kUc,  Transport::kRd,
                                    Transport::kUd, Transport::kCnp, Transport::kXrc};
    EXPECT_EQ(info.transport, transports[opcode >> 5]);
  }
}

TEST(Opcode, ExtensionsByName) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<Opcode>(opcode));
    if (!info.known) continue;
    const std::string name = info.name;
    SCOPED_TRACE(name);
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    EXPECT_EQ(info.has_immdt, has("IMMEDIATE"));
    EXPECT_EQ(info.has_ieth, has("INVALIDATE"));
    EXPECT_EQ(info.has_aeth, has("ACKNOWLEDGE") || (has("RESPONSE") && !has("MIDDLE")));
    EXPECT_EQ(info.has_atomic_ack_eth, has("ATOMIC_ACKNOWLEDGE"));
    EXPECT_EQ(info.has_atomic_eth, has("COMPARE_SWAP") || has("FETCH_ADD"));
    EXPECT_EQ(info.has_reth,
              has("WRITE_FIRST") || has("WRITE_ONLY") || has("READ_REQUEST") || has("FLUSH") || has("ATOMIC_WRITE"));
    EXPECT_EQ(info.has_feth, has("FLUSH"));
  }
}

TEST(Opcode, Operations) {
  EXPECT_EQ(opcode_info(Opcode::kRcSendLastInvalidate).operation, Operation::kSend);
  EXPECT_EQ(opcode_info(Opcode::kUcWriteLastImmediate).operation, Operation::kWrite);
  EXPECT_EQ(opcode_info(Opcode::kXrcReadRequest).operation, Operation::kReadRequest);
  EXPECT_EQ(opcode_info(Opcode::kXrcReadResponseLast).operation, Operation::kReadResponse);
  EXPECT_EQ(opcode_info(Opcode::kRcAcknowledge).operation, Operation::kAcknowledge);
  EXPECT_EQ(opcode_info(Opcode::kRcAtomicAcknowledge).operation, Operation::kAtomicAcknowledge);
  EXPECT_EQ(opcode_info(Opcode::kRcCompareSwap).operation, Operation::kCompareSwap);
  EXPECT_EQ(opcode_info(Opcode::kXrcFetchAdd).operation, Operation::kFetchAdd);
  EXPECT_EQ(opcode_info(Opcode::kRcFlush).operation, Operation::kFlush);
  EXPECT_EQ(opcode_info(Opcode::kRcAtomicWrite).operation, Operation::kAtomicWrite);
  EXPECT_EQ(opcode_info(Opcode::kUdSendOnly).operation, Operation::kSend);
  EXPECT_EQ(opcode_info(Opcode{0xff}).operation, Operation::kNone);
}

TEST(Opcode, CnpHasSixteenReservedBytes) {
  const OpcodeInfo& info = opcode_info(Opcode::kCnp);
  EXPECT_TRUE(info.known);
  EXPECT_EQ(info.transport, Transport::kCnp);
  EXPECT_EQ(info.operation, Operation::kCnp);
  EXPECT_EQ(info.header_size, 28);
  EXPECT_FALSE(info.has_payload);
  EXPECT_FALSE(info.request);
}

}  // namespace
}  // namespace uroce::wire

// SPDX-License-Identifier: BSD-2-Clause
#include "wire/mad.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/wire/header_checks.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

TEST(MadHeader, EveryFieldHasItsBytes) {
  expect_on_wire<MadHeaderView>(
      MadHeader{.transaction = TransactionId{0x1122334455667788}, .attribute = 0x10, .modifier = 0xa1b2c3d4},
      "01 07 02 03 0000 0000 1122334455667788 0010 0000 a1b2c3d4");
  expect_on_wire<MadHeaderView>(
      MadHeader{
          .base_version = 0x21, .management_class = 0x32, .class_version = 0x43, .method = 0x54, .status = 0x6576},
      "21 32 43 54 6576 0000 0000000000000000 0000 0000 00000000");
}

TEST(MadHeader, ReservedBitsAreIgnoredAndWrittenAsZero) {
  expect_all_ones_becomes<MadHeaderView, MadHeader>("ffffffff ffff0000 ffffffffffffffff ffff0000 ffffffff");
}

TEST(GsiPacket, IsAUdSendBetweenQp1s) {
  Mad mad{};
  for (size_t i = 0; i < mad.size(); ++i) mad[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> packet(kGsiPacketSize + 4, 0xee);
  emit_gsi_packet(Psn(0xabcdef), mad, packet.data());
  EXPECT_EQ(std::vector<uint8_t>(packet.begin(), packet.begin() + 20),
            hex("6400ffff 00000001 00abcdef 80010000 00000001"));
  EXPECT_EQ(std::vector<uint8_t>(packet.end() - 4, packet.end()), hex("eeeeeeee")) << "wrote too much";
  Packet parsed;
  ASSERT_EQ(parse_packet(packet, parsed), ParseError::kNone);
  EXPECT_EQ(std::vector<uint8_t>(parsed.payload.begin(), parsed.payload.end()),
            std::vector<uint8_t>(mad.begin(), mad.end()));
}

}  // namespace
}  // namespace uroce::wire

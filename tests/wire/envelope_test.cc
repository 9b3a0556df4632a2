// SPDX-License-Identifier: BSD-2-Clause
#include "wire/envelope.h"

#include <gtest/gtest.h>

#include "tests/wire/hex.h"

namespace uroce::wire {
namespace {

std::string v6_text(const char* sixteen) {
  return IpAddress::v6(hex(sixteen).data()).text();
}

TEST(IpAddress, V4Text) {
  EXPECT_EQ(IpAddress::v4(hex("c0000201").data()).text(), "192.0.2.1");
  EXPECT_EQ(IpAddress::v4(hex("ffffffff").data()).text(), "255.255.255.255");
  EXPECT_EQ(v6_text("00000000 00000000 0000ffff 0a001201"), "10.0.18.1");
}

TEST(IpAddress, V6TextIsCanonical) {  // RFC 5952
  EXPECT_EQ(v6_text("00000000 00000000 00000000 00000000"), "::");
  EXPECT_EQ(v6_text("00000000 00000000 00000000 00000001"), "::1");
  EXPECT_EQ(v6_text("fe800000 00000000 00000000 00000000"), "fe80::");
  EXPECT_EQ(v6_text("fe800000 00000000 0211 22fffe334455"), "fe80::211:22ff:fe33:4455");
  EXPECT_EQ(v6_text("20010db8 00000000 00010000 00000001"), "2001:db8::1:0:0:1");     // the first of equal runs
  EXPECT_EQ(v6_text("20010000 00000001 00000000 00000001"), "2001:0:0:1::1");         // the longest run
  EXPECT_EQ(v6_text("20010db8 00000001 00010001 00010001"), "2001:db8:0:1:1:1:1:1");  // one group is not shortened
  EXPECT_EQ(v6_text("20010db8 12345678 9abcdef0 0a0b0c0d"), "2001:db8:1234:5678:9abc:def0:a0b:c0d");
}

}  // namespace
}  // namespace uroce::wire

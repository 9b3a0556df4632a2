// SPDX-License-Identifier: BSD-2-Clause
#include "wire/cma_header.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/wire/hex.h"

namespace uroce::wire {
namespace {

constexpr uint8_t kSource[] = {192, 0, 2, 1}, kDestination[] = {198, 51, 100, 2};
const char* const kV4 =
    "00 40 d431 000000000000000000000000 c0000201"
    "           000000000000000000000000 c6336402";
const char* const kV6 =
    "00 60 0016 20010db8000000000000000000000001"
    "           fe80000000000000021122fffe334455";

std::vector<uint8_t> emitted(const CmaHeader& header) {
  std::vector<uint8_t> out(CmaHeader::kSize + 1, 0xee);
  header.emit(out.data());
  EXPECT_EQ(out.back(), 0xee) << "wrote too much";
  out.pop_back();
  return out;
}

TEST(CmaHeader, Ipv4AddressesAreTheLastFourOfSixteenBytes) {
  const CmaHeader header{
      .v4 = true, .source_port = 0xd431, .source = IpAddress::v4(kSource), .destination = IpAddress::v4(kDestination)};
  EXPECT_EQ(emitted(header), hex(kV4));
  EXPECT_EQ(CmaHeader::parse(hex(kV4)), header);
}

TEST(CmaHeader, Ipv6) {
  const CmaHeader header{.v4 = false,
                         .source_port = 22,
                         .source = IpAddress::v6(hex("20010db8000000000000000000000001").data()),
                         .destination = IpAddress::v6(hex("fe80000000000000021122fffe334455").data())};
  EXPECT_EQ(emitted(header), hex(kV6));
  EXPECT_EQ(CmaHeader::parse(hex(kV6)), header);
}

TEST(CmaHeader, OtherVersionsAndShortDataAreRefused) {
  auto bytes = hex(kV4);
  EXPECT_TRUE(CmaHeader::parse(bytes));
  bytes[0] = 1;
  EXPECT_FALSE(CmaHeader::parse(bytes)) << "another version";
  bytes = hex(kV4);
  for (int version = 0; version < 16; ++version) {
    bytes[1] = static_cast<uint8_t>(version << 4 | 0x0f);  // the low bits are reserved
    EXPECT_EQ(CmaHeader::parse(bytes).has_value(), version == 4 || version == 6) << version;
  }
  bytes = hex(kV4);
  for (size_t size = 0; size < CmaHeader::kSize; ++size) {
    EXPECT_FALSE(CmaHeader::parse(std::span(bytes).first(size))) << size;
  }
}

TEST(ServiceIds, AreAPortSpaceAndAPort) {
  EXPECT_EQ(service_id(PortSpace::kTcp, 7471), ServiceId{0x0000000001061d2f});
  EXPECT_EQ(service_id(PortSpace::kUdp, 1), ServiceId{0x0000000001110001});
  EXPECT_EQ(service_id(PortSpace::kIpoib, 2), ServiceId{0x0000000000020002});
  EXPECT_EQ(service_id(PortSpace::kIb, 0xffff), ServiceId{0x00000000013fffff});
  EXPECT_EQ(service_port(ServiceId{0x01061d2f}), 7471);
}

}  // namespace
}  // namespace uroce::wire

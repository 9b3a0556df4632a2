// SPDX-License-Identifier: BSD-2-Clause
// MTUs, GIDs and address vectors in both forms; exceptions become errno values.
#include "abi/verbs/values.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "abi/verbs/objects.h"

namespace uroce::verbs {
namespace {

TEST(Mtu, ConvertsBothWays) {
  for (const auto mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    EXPECT_EQ(mtu_to_verbs(mtu_from_verbs(mtu)), mtu);
  }
  EXPECT_EQ(mtu_from_verbs(IBV_MTU_1024), 1024u);
  EXPECT_EQ(mtu_from_verbs(0), 0u);
  EXPECT_EQ(mtu_from_verbs(6), 0u);
}

TEST(Mtu, RoundsDown) {
  EXPECT_EQ(mtu_to_verbs(1420), IBV_MTU_1024);
  EXPECT_EQ(mtu_to_verbs(9000), IBV_MTU_4096);
  EXPECT_EQ(mtu_to_verbs(0), IBV_MTU_256);
}

ibv_ah_attr some_address() {
  ibv_ah_attr attr{};
  for (int i = 0; i < 16; ++i) attr.grh.dgid.raw[i] = static_cast<uint8_t>(0x20 + i);
  attr.grh.flow_label = 0xabcde;
  attr.grh.sgid_index = 3;
  attr.grh.hop_limit = 17;
  attr.grh.traffic_class = 0x6a;
  attr.sl = 5;
  attr.static_rate = IBV_RATE_10_GBPS;
  attr.is_global = 1;
  attr.port_num = 1;
  return attr;
}

TEST(Address, ConvertsBothWays) {
  const ibv_ah_attr attr = some_address();
  transport::AddressVector vector;
  ASSERT_EQ(address_from_verbs(attr, vector), 0);
  EXPECT_EQ(vector.destination.bytes[15], 0x2f);
  const ibv_ah_attr back = address_to_verbs(vector);
  EXPECT_EQ(std::memcmp(back.grh.dgid.raw, attr.grh.dgid.raw, 16), 0);
  EXPECT_EQ(back.grh.flow_label, attr.grh.flow_label);
  EXPECT_EQ(back.grh.sgid_index, attr.grh.sgid_index);
  EXPECT_EQ(back.grh.hop_limit, attr.grh.hop_limit);
  EXPECT_EQ(back.grh.traffic_class, attr.grh.traffic_class);
  EXPECT_EQ(back.sl, attr.sl);
  EXPECT_EQ(back.static_rate, attr.static_rate);
  EXPECT_EQ(back.is_global, 1);
  EXPECT_EQ(back.port_num, 1);
}

TEST(Address, HasToBeGlobal) {
  ibv_ah_attr attr = some_address();
  attr.is_global = 0;
  transport::AddressVector vector;
  EXPECT_EQ(address_from_verbs(attr, vector), EINVAL);
}

// Whatever is thrown below the ABI ends there, as a value and in errno.
TEST(Exceptions, BecomeErrnoValues) {
  const auto outcome_of = [](auto&& body) {
    errno = 0;
    const int error = without_exceptions(body);
    EXPECT_EQ(errno, error);
    return error;
  };
  EXPECT_EQ(outcome_of([] { return 0; }), 0);
  EXPECT_EQ(outcome_of([] { return EBUSY; }), EBUSY);
  EXPECT_EQ(outcome_of([]() -> int { throw std::bad_alloc(); }), ENOMEM);
  EXPECT_EQ(outcome_of([] { return static_cast<int>(std::vector<char>(SIZE_MAX).size()); }), ENOMEM);
  EXPECT_EQ(outcome_of([]() -> int { throw std::system_error(ENODEV, std::generic_category()); }), ENODEV);
  EXPECT_EQ(outcome_of([]() -> int { throw std::system_error(0, std::generic_category()); }), EIO);
  EXPECT_EQ(outcome_of([] { return std::string("a").at(1) == 'b' ? 1 : 0; }), EIO) << "out_of_range";
}

TEST(Address, HasToNameThePort) {
  ibv_ah_attr attr = some_address();
  attr.port_num = 2;
  transport::AddressVector vector;
  EXPECT_EQ(address_from_verbs(attr, vector), EINVAL);
}

}  // namespace
}  // namespace uroce::verbs

// MTUs, GIDs and address vectors in both forms.
#include "verbs_shim/values.h"

#include <cerrno>
#include <gtest/gtest.h>

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

TEST(Address, HasToNameThePort) {
  ibv_ah_attr attr = some_address();
  attr.port_num = 2;
  transport::AddressVector vector;
  EXPECT_EQ(address_from_verbs(attr, vector), EINVAL);
}

}  // namespace
}  // namespace uroce::verbs

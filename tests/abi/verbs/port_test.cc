// SPDX-License-Identifier: BSD-2-Clause
// The port and its tables, through every generation of query functions.
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <endian.h>

#include "fixture.h"

// Private to rdma-core; ibv_devinfo calls it.
extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type);

namespace {

using PortTest = ClientTest;

TEST_F(PortTest, IsAnActiveEthernetPort) {
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(client_.context, 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_1024);  // 1500 bytes of netdev MTU
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  EXPECT_GE(attr.gid_tbl_len, 2);
  EXPECT_EQ(attr.lid, 0);
  EXPECT_EQ(attr.sm_lid, 0);
  EXPECT_EQ(attr.phys_state, 5) << "LinkUp";
  EXPECT_EQ(attr.max_vl_num, 1);
  EXPECT_EQ(attr.max_msg_sz, 0x7fffffffu);
  EXPECT_EQ(attr.port_cap_flags, static_cast<uint32_t>(IBV_PORT_IP_BASED_GIDS));
  EXPECT_EQ(attr.flags, IBV_QPF_GRH_REQUIRED);
  EXPECT_EQ(attr.bad_pkey_cntr, 0u);
  EXPECT_EQ(attr.qkey_viol_cntr, 0u);
  EXPECT_EQ(attr.subnet_timeout, 0);
  EXPECT_EQ(attr.active_width, 1) << "1x";
  EXPECT_EQ(attr.active_speed, 4) << "of 10 Gb/s, as a veth says";
  EXPECT_EQ(ibv_query_port(client_.context, 2, &attr), EINVAL);
}

TEST_F(PortTest, WritesNoMoreThanTheCallerHas) {
  verbs_context* dispatch = verbs_get_ctx(client_.context);
  for (const size_t size : {size_t{48}, size_t{52}, size_t{56}}) {
    unsigned char buffer[64];
    std::memset(buffer, 0x5a, sizeof(buffer));
    ASSERT_EQ(dispatch->query_port(client_.context, 1, reinterpret_cast<ibv_port_attr*>(buffer), size), 0);
    EXPECT_NE(buffer[size - 1], 0x5a);
    EXPECT_EQ(buffer[size], 0x5a);
  }
  unsigned char buffer[64];
  std::memset(buffer, 0x5a, sizeof(buffer));
  ASSERT_EQ((ibv_query_port)(client_.context, 1, reinterpret_cast<struct _compat_ibv_port_attr*>(buffer)), 0);
  EXPECT_EQ(buffer[48], 0x5a) << "the symbol is of before port_cap_flags2";
}

TEST_F(PortTest, GidsAreTheAddressesOfTheNetdev) {
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(client_.context, 1, 0, &gid), 0);
  char text[INET6_ADDRSTRLEN];
  EXPECT_STREQ(inet_ntop(AF_INET6, gid.raw, text, sizeof(text)), "::ffff:192.0.2.1");
  ASSERT_EQ(ibv_query_gid(client_.context, 1, 1, &gid), 0);
  EXPECT_STREQ(inet_ntop(AF_INET6, gid.raw, text, sizeof(text)), "::ffff:198.51.100.1");
}

TEST_F(PortTest, EmptyAndMissingGidEntries) {
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(client_.context, 1, &port), 0);
  const int empty = port.gid_tbl_len - 1;
  ibv_gid gid;
  std::memset(&gid, 0x5a, sizeof(gid));
  EXPECT_EQ(ibv_query_gid(client_.context, 1, empty, &gid), 0);
  EXPECT_EQ(gid.global.interface_id, 0u);
  ibv_gid_entry entry;
  EXPECT_EQ(ibv_query_gid_ex(client_.context, 1, static_cast<uint32_t>(empty), &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid(client_.context, 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(client_.context, 1, static_cast<uint32_t>(port.gid_tbl_len), &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(client_.context, 2, 0, &entry, 0), EINVAL);
}

TEST_F(PortTest, GidEntriesAreRoceV2) {
  ibv_gid_entry entry;
  ASSERT_EQ(ibv_query_gid_ex(client_.context, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid_index, 1u);
  EXPECT_EQ(entry.port_num, 1u);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(entry.ndev_ifindex, static_cast<uint32_t>(ibv_get_device_index(client_.context->device)));

  ibv_gid_entry table[32];
  const ssize_t count = ibv_query_gid_table(client_.context, table, 32, 0);
  ASSERT_GE(count, 2);
  EXPECT_EQ(std::memcmp(&table[1], &entry, sizeof(entry)), 0);
  EXPECT_EQ(ibv_query_gid_table(client_.context, table, 1, 0), -EINVAL);

  int type = 0;
  ASSERT_EQ(ibv_query_gid_type(client_.context, 1, 0, &type), 0);
  EXPECT_EQ(type, 1);
}

TEST_F(PortTest, HasTheDefaultPkeyOnly) {
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(client_.context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, htobe16(0xffff));
  EXPECT_EQ(ibv_query_pkey(client_.context, 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(client_.context, 1, htobe16(0xffff)), 0);
  EXPECT_EQ(ibv_get_pkey_index(client_.context, 1, htobe16(0x8001)), -1);
}

ibv_ah_attr own_address(ibv_context* context) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  EXPECT_EQ(ibv_query_gid(context, 1, 0, &attr.grh.dgid), 0);
  return attr;
}

TEST_F(PortTest, AddressHandlesNeedAGrhAndASourceGid) {
  ibv_ah_attr attr = own_address(client_.context);
  ibv_ah* ah = ibv_create_ah(client_.pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(client_.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  attr.grh.sgid_index = 200;
  EXPECT_EQ(ibv_create_ah(client_.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = own_address(client_.context);
  attr.is_global = 0;
  EXPECT_EQ(ibv_create_ah(client_.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(PortTest, ResolvesItsOwnAndMulticastAddresses) {
  uint8_t mac[ETHERNET_LL_SIZE] = {};
  uint16_t vid = 0;
  ibv_ah_attr attr = own_address(client_.context);
  ASSERT_EQ(ibv_resolve_eth_l2_from_gid(client_.context, &attr, mac, &vid), 0);
  EXPECT_NE(mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5], 0);
  EXPECT_EQ(vid, 0xffff);
  const uint8_t group[4] = {239, 129, 2, 3};
  std::memcpy(&attr.grh.dgid.raw[12], group, sizeof(group));
  ASSERT_EQ(ibv_resolve_eth_l2_from_gid(client_.context, &attr, mac, nullptr), 0);
  const uint8_t expected[] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
  EXPECT_EQ(std::memcmp(mac, expected, sizeof(expected)), 0);
}

TEST_F(PortTest, MakesAddressesFromReceivedIpv4Headers) {
  unsigned char bytes[40] = {};
  const unsigned char header[20] = {0x45, 0x68, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 203, 0, 113, 9, 192, 0, 2, 1};
  std::memcpy(bytes + 20, header, sizeof(header));
  ibv_grh grh;
  std::memcpy(&grh, bytes, sizeof(grh));
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr attr;
  ASSERT_EQ(ibv_init_ah_from_wc(client_.context, 1, &wc, &grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  EXPECT_EQ(attr.grh.traffic_class, 0x68);
  const unsigned char sender[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9};
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw, sender, sizeof(sender)), 0);
  // There is no way to the sender: an address handle needs one.
  EXPECT_EQ(ibv_create_ah_from_wc(client_.pd, &wc, &grh, 1), nullptr);
  EXPECT_EQ(errno, ENETUNREACH);
  const unsigned char neighbour[4] = {192, 0, 2, 77};
  std::memcpy(bytes + 20 + 12, neighbour, sizeof(neighbour));
  std::memcpy(&grh, bytes, sizeof(grh));
  ibv_ah* ah = ibv_create_ah_from_wc(client_.pd, &wc, &grh, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  bytes[20 + 19] = 77;  // not to us
  std::memcpy(&grh, bytes, sizeof(grh));
  EXPECT_EQ(ibv_init_ah_from_wc(client_.context, 1, &wc, &grh, &attr), -1);
}

}  // namespace

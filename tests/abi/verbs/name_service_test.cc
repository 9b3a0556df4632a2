// SPDX-License-Identifier: BSD-2-Clause
// ibv_resolve_eth_l2_from_gid: next hops, groups, VLANs, and what cannot be reached.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "alone.h"
#include "fixture.h"

namespace {

using Mac = std::array<uint8_t, ETHERNET_LL_SIZE>;

ibv_context* open_netdev(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if ("uroce_" + name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

int resolve(ibv_context* context, const std::array<uint8_t, 16>& destination, Mac& mac, uint16_t& vid,
            uint8_t source = 0) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = source;
  std::memcpy(attr.grh.dgid.raw, destination.data(), destination.size());
  mac = {};
  vid = 0;
  return ibv_resolve_eth_l2_from_gid(context, &attr, mac.data(), &vid);
}

constexpr std::array<uint8_t, 16> v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

// On a VLAN netdev, where the kernel can make one.
TEST(NameService, OfVlansGroupsAndStrangers) {
  if (!alone(kAllNetdevs)) return;
  const bool has_vlan = system("LD_PRELOAD= ip link add link rdma0 name vlan0 type vlan id 42 2> /dev/null") == 0;
  const std::string netdev = has_vlan ? "vlan0" : "rdma0";
  const uint16_t expected_vid = has_vlan ? 42 : 0xffff;
  run("ip link set " + netdev + " addrgenmode none; ip addr flush dev rdma0; ip link set " + netdev + " up");
  run("ip addr add 203.0.113.1/28 dev " + netdev + " && ip addr add 2001:db8::1/64 nodad dev " + netdev);
  run("ip neigh add 203.0.113.2 lladdr 02:00:00:00:00:07 dev " + netdev);
  run("ip route add 198.51.100.128/25 via 203.0.113.2 dev " + netdev);
  ibv_context* context = open_netdev(netdev);
  ASSERT_NE(context, nullptr);
  const Mac neighbour{2, 0, 0, 0, 0, 7};
  Mac mac;
  uint16_t vid;

  EXPECT_EQ(resolve(context, v4(203, 0, 113, 2), mac, vid), 0);
  EXPECT_EQ(mac, neighbour);
  EXPECT_EQ(vid, expected_vid);
  EXPECT_EQ(resolve(context, v4(198, 51, 100, 200), mac, vid), 0) << "through a gateway";
  EXPECT_EQ(mac, neighbour);
  EXPECT_EQ(resolve(context, v4(203, 0, 113, 1), mac, vid), 0) << "the own address";
  EXPECT_EQ(vid, expected_vid);

  EXPECT_EQ(resolve(context, v4(239, 129, 2, 3), mac, vid), 0);
  EXPECT_EQ(mac, (Mac{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}));
  EXPECT_EQ(vid, expected_vid);
  EXPECT_EQ(resolve(context, {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, mac, vid, 1), 0);
  EXPECT_EQ(mac, (Mac{0x33, 0x33, 1, 2, 3, 4}));

  EXPECT_EQ(resolve(context, v4(9, 9, 9, 9), mac, vid), ENETUNREACH);
  EXPECT_EQ(resolve(context, v4(203, 0, 113, 2), mac, vid, 200), EINVAL) << "no such source";
  run("echo 1 > /proc/sys/net/ipv4/neigh/" + netdev + "/mcast_solicit");
  EXPECT_EQ(resolve(context, v4(203, 0, 113, 9), mac, vid), EHOSTUNREACH) << "nobody answers";
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace

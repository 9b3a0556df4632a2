// SPDX-License-Identifier: BSD-2-Clause
// Which netdevs become devices, and in which order (engine/net/device_identity.h): the shim and the files ask the same.
#include <gmock/gmock.h>

#include "engine/net/device_identity.h"
#include "engine/net/device_names.h"

namespace uroce::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const wire::IpAddress kGlobal = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data());
const wire::IpAddress kLinkLocal{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

net::Netdev netdev(const std::string& name, const std::string& kind, std::vector<wire::IpAddress> addresses,
                   bool active = true) {
  net::Netdev netdev;
  netdev.name = name;
  netdev.kind = kind;
  netdev.up = netdev.running = active;
  netdev.addresses = std::move(addresses);
  return netdev;
}

net::Netdev of_type(net::LinkType type, net::Netdev netdev) {
  netdev.type = type;
  return netdev;
}

// A host with containers, in the kernel's order.
const std::vector<net::Netdev> kHost = {
    of_type(net::LinkType::kLoopback, netdev("lo", "", {kGlobal})),
    of_type(net::LinkType::kIp, netdev("wg0", "wireguard", {kGlobal})),
    of_type(net::LinkType::kIp, netdev("tun0", "tun", {kGlobal}, false)),
    of_type(net::LinkType::kIp, netdev("sit0", "sit", {})),
    netdev("bare0", "", {}),
    netdev("ifb0", "ifb", {kLinkLocal}),
    netdev("docker0", "bridge", {kGlobal}),
    netdev("dummy0", "dummy", {kGlobal}),
    netdev("cali1", "veth", {kLinkLocal}),
    netdev("eth9", "", {kGlobal}, false),
    netdev("eth8", "", {kLinkLocal}),
    netdev("eth0", "", {kGlobal, kLinkLocal}),
    netdev("eth0.7", "vlan", {kGlobal}),
    netdev("rdma0", "veth", {kGlobal}),
};

std::vector<std::string> devices(const std::string& names) {
  std::vector<std::string> result;
  for (const net::Netdev& device : devices_of(kHost, names)) result.push_back(device.name);
  return result;
}

TEST(Devices, AreThoseThatApplicationsCanUseTheBestFirst) {
  EXPECT_THAT(devices(""), ElementsAre("eth0", "eth0.7", "rdma0", "wg0", "eth9", "eth8", "tun0"));
}

TEST(Devices, LoopbackIsOneWhereThereIsNoOther) {
  std::vector<net::Netdev> few = {kHost.front(), netdev("eth0", "", {}), netdev("docker0", "bridge", {kGlobal})};
  const auto names = [&few] {
    std::vector<std::string> result;
    for (const net::Netdev& device : devices_of(few, "")) result.push_back(device.name);
    return result;
  };
  EXPECT_THAT(names(), ElementsAre("lo"));
  few[1].addresses = {kGlobal};
  EXPECT_THAT(names(), ElementsAre("eth0"));
  few[1].addresses.clear();
  few[0].addresses.clear();  // it is down
  EXPECT_THAT(names(), IsEmpty());
}

TEST(Devices, MayBeNamed) {
  EXPECT_THAT(devices("eth9"), ElementsAre("eth9"));
  EXPECT_THAT(devices("docker0,bare0"), ElementsAre("docker0", "bare0"));
  EXPECT_THAT(devices("eth?"), ElementsAre("eth0", "eth9", "eth8"));
  EXPECT_THAT(devices("eth[0-8],cali*"), ElementsAre("eth0", "cali1", "eth8"));
  EXPECT_EQ(devices("*").size(), kHost.size() - 1) << "a pattern does not mean lo";
  EXPECT_THAT(devices("lo,eth0"), ElementsAre("eth0", "lo"));
  EXPECT_THAT(devices("eth"), IsEmpty());
}

TEST(Devices, NamesAreChecked) {
  for (const char* good : {"", "eth0", "eth0,eth1", "e*,[a-f]?", "eth0.7"}) EXPECT_TRUE(is_list_of_names(good)) << good;
  for (const char* bad : {",", "eth0,", ",eth0", "eth0,,eth1", "eth0 eth1", "eth0, eth1", "/sys"}) {
    EXPECT_FALSE(is_list_of_names(bad)) << bad;
  }
}

TEST(DeviceNames, AreTheNetdevsOrTheUsers) {
  net::Netdev netdev;
  netdev.name = "eth0";
  EXPECT_EQ(device_name(netdev, ""), "uroce_eth0");
  EXPECT_EQ(device_name(netdev, "eth1=mlx5_0"), "uroce_eth0");
  EXPECT_EQ(device_name(netdev, "eth00=mlx5_0,eth0=rxe0"), "rxe0");
}

TEST(DeviceNames, WhatIsWrongWithThem) {
  const std::string longest(63, 'a');
  const std::vector<std::string> right = {"", "eth0=mlx5_0", "eth0=uroce_eth0", "a=1.x-y,b=B", "eth0=" + longest};
  for (const std::string& good : right) {
    EXPECT_EQ(wrong_device_names(good), "") << good;
  }
  const std::pair<std::string, const char*> bad[] = {
      {"eth0", "is not NETDEV=NAME"},
      {"=a", "is not NETDEV=NAME"},
      {"eth0=a,", "is not NETDEV=NAME"},
      {"eth0=", "cannot be the name"},
      {"eth0=a/b", "cannot be the name"},
      {"eth0=..", "cannot be the name"},
      {"eth0=a=b", "cannot be the name"},
      {"eth0=a b", "cannot be the name"},
      {"eth0=a" + longest, "cannot be the name"},
      {"eth0=a\n", "cannot be the name"},
      {"eth0=a,eth0=b", "has two names"},
      {"eth0=a,eth1=a", "would be called 'a'"},
      {"eth0=uroce_eth1", "another netdev"},
      {"eth0=-a", "cannot be the name"},
  };
  for (const auto& [names, why] : bad) EXPECT_THAT(wrong_device_names(names), testing::HasSubstr(why)) << names;
}

}  // namespace
}  // namespace uroce::engine

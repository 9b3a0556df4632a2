// SPDX-License-Identifier: BSD-2-Clause
// Which netdevs become devices, and in which order (engine/net/device_identity.h): the shim and the files ask the same.
#include <gmock/gmock.h>

#include "engine/net/device_identity.h"

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

// A host with containers, in the kernel's order.
const std::vector<net::Netdev> kHost = {
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
  EXPECT_THAT(devices(""), ElementsAre("eth0", "eth0.7", "rdma0", "eth9", "eth8"));
}

TEST(Devices, MayBeNamed) {
  EXPECT_THAT(devices("eth9"), ElementsAre("eth9"));
  EXPECT_THAT(devices("docker0,bare0"), ElementsAre("docker0", "bare0"));
  EXPECT_THAT(devices("eth?"), ElementsAre("eth0", "eth9", "eth8"));
  EXPECT_THAT(devices("eth[0-8],cali*"), ElementsAre("eth0", "cali1", "eth8"));
  EXPECT_EQ(devices("*").size(), kHost.size());
  EXPECT_THAT(devices("eth"), IsEmpty());
}

TEST(Devices, NamesAreChecked) {
  for (const char* good : {"", "eth0", "eth0,eth1", "e*,[a-f]?", "eth0.7"}) EXPECT_TRUE(is_list_of_names(good)) << good;
  for (const char* bad : {",", "eth0,", ",eth0", "eth0,,eth1", "eth0 eth1", "eth0, eth1", "/sys"}) {
    EXPECT_FALSE(is_list_of_names(bad)) << bad;
  }
}

}  // namespace
}  // namespace uroce::engine

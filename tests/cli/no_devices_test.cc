// SPDX-License-Identifier: BSD-2-Clause
// What is said where programs see no device.
#include "cli/no_devices.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace uroce::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

net::Netdev netdev(const std::string& name, const std::string& kind, bool has_address) {
  net::Netdev netdev;
  netdev.name = name;
  netdev.kind = kind;
  netdev.up = netdev.running = true;
  if (has_address) netdev.addresses = {wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data())};
  return netdev;
}

net::Netdev loopback() {
  net::Netdev lo = netdev("lo", "", true);
  lo.type = net::LinkType::kLoopback;
  return lo;
}

TEST(NoDevices, NothingWhereThereAreSome) {
  EXPECT_EQ(why_no_devices({netdev("eth0", "", true)}, ""), "");
  EXPECT_EQ(why_no_devices({netdev("dummy0", "dummy", true)}, "dummy*"), "");
  EXPECT_EQ(why_no_devices({loopback(), netdev("eth0", "", true)}, ""), "");
  EXPECT_EQ(why_no_devices({loopback(), netdev("eth0", "", true)}, "lo"), "");
}

TEST(NoDevices, LoopbackWhereThereIsNothingElse) {
  EXPECT_EQ(why_no_devices({loopback()}, ""), "");
  EXPECT_EQ(why_no_devices({}, ""), "no devices: there is no netdev with an address; ip link set lo up makes lo one");
}

TEST(NoDevices, NoAddress) {
  const std::string what = "eth0 has no address; ip address add ADDRESS/LENGTH dev eth0";
  EXPECT_EQ(why_no_devices({netdev("eth0", "", false)}, ""), "no devices: " + what);
  EXPECT_EQ(why_no_devices({loopback(), netdev("eth0", "", false)}, ""), "only lo is a device: " + what);
}

TEST(NoDevices, OnlyWhatHasToBeNamed) {
  const std::vector<net::Netdev> those = {loopback(), netdev("dummy0", "dummy", true), netdev("br0", "bridge", true),
                                          netdev("eth0", "", false)};
  EXPECT_THAT(why_no_devices(those, ""), AllOf(HasSubstr("only lo is a device"), HasSubstr("--netdev dummy0,br0 or")));
  EXPECT_THAT(why_no_devices({those.begin() + 1, those.end()}, ""), HasSubstr("no devices: what serves others"));
}

TEST(NoDevices, OthersAreNamed) {
  EXPECT_THAT(why_no_devices({netdev("eth0", "", true)}, "ens*"),
              HasSubstr("'ens*' names no usable netdev; there are: eth0"));
}

}  // namespace
}  // namespace uroce::cli

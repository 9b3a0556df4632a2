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

using testing::HasSubstr;

net::Netdev netdev(const std::string& name, const std::string& kind, bool has_address) {
  net::Netdev netdev;
  netdev.name = name;
  netdev.kind = kind;
  netdev.up = netdev.running = true;
  if (has_address) netdev.addresses = {wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data())};
  return netdev;
}

TEST(NoDevices, NothingWhereThereAreSome) {
  EXPECT_EQ(why_no_devices({netdev("eth0", "", true)}, ""), "");
  EXPECT_EQ(why_no_devices({netdev("dummy0", "dummy", true)}, "dummy*"), "");
}

TEST(NoDevices, NoNetdev) {
  EXPECT_EQ(why_no_devices({}, ""), "there is no Ethernet netdev here");
}

TEST(NoDevices, NoAddress) {
  EXPECT_THAT(why_no_devices({netdev("eth0", "", false)}, ""), HasSubstr("ip address add ADDRESS/LENGTH dev eth0"));
}

TEST(NoDevices, OnlyWhatHasToBeNamed) {
  EXPECT_THAT(
      why_no_devices({netdev("dummy0", "dummy", true), netdev("br0", "bridge", true), netdev("eth0", "", false)}, ""),
      HasSubstr("--netdev dummy0,br0 or"));
}

TEST(NoDevices, OthersAreNamed) {
  EXPECT_THAT(why_no_devices({netdev("eth0", "", true)}, "ens*"),
              HasSubstr("'ens*' names no Ethernet netdev; there are: eth0"));
}

}  // namespace
}  // namespace uroce::cli

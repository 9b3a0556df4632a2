// What is known of a netdev and its driver.
#include "engine/net/netdev_features.h"

#include <gtest/gtest.h>

namespace uroce::net {
namespace {

TEST(DriverTable, ErrsOnTheSideOfLess) {
  EXPECT_TRUE(xdp_support_of_driver("ice").zero_copy);
  EXPECT_TRUE(xdp_support_of_driver("ice").native);
  EXPECT_TRUE(xdp_support_of_driver("veth").native);
  EXPECT_FALSE(xdp_support_of_driver("veth").zero_copy);
  EXPECT_FALSE(xdp_support_of_driver("e1000e").native);
  EXPECT_FALSE(xdp_support_of_driver("").native);
}

}  // namespace
}  // namespace uroce::net

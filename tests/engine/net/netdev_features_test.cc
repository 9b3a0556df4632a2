// What is known of a netdev and its driver.
#include "engine/net/netdev_features.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include "tests/engine/net/net_test_support.h"

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

class NetdevFeaturesTest : public NetViewTest {
 protected:
  static Segmentation segmentation(const char* netdev) {
    return netdev_features(static_cast<int>(if_nametoindex(netdev)), netdev).udp_segmentation;
  }
};

TEST_F(NetdevFeaturesTest, OfAVethPair) {
  const NetdevFeatures features = netdev_features(static_cast<int>(if_nametoindex("va0")), "va0");
  EXPECT_EQ(features.driver, "veth");
  EXPECT_TRUE(features.xdp.native);
  EXPECT_FALSE(features.xdp.zero_copy);
}

TEST_F(NetdevFeaturesTest, SegmentationOnAndOff) {
  EXPECT_EQ(segmentation("va0"), Segmentation::kOn);
  run("ethtool -K va0 tx-udp-segmentation off");
  EXPECT_EQ(segmentation("va0"), Segmentation::kOff);
  EXPECT_EQ(segmentation("nosuchdev"), Segmentation::kNone);
}

// A tap device takes runs when its reader says that it does.
TEST_F(NetdevFeaturesTest, SegmentationThatIsOnButNotPossible) {
  run("ip tuntap add tap0 mode tap");
  EXPECT_EQ(segmentation("tap0"), Segmentation::kWithdrawn);
}

}  // namespace
}  // namespace uroce::net

// SPDX-License-Identifier: BSD-2-Clause
// What is known of a netdev and its driver.
#include "engine/net/netdev_features.h"

#include <cerrno>
#include <cstdarg>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/engine/net/net_test_support.h"

namespace {

bool counts_are_refused = false;  // ETHTOOL_GSSET_INFO is
int asked_for_names = 0;          // ETHTOOL_GSTRINGS was, so often

}  // namespace

// Between netdev_features() and the kernel.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == SIOCETHTOOL) {
    const uint32_t command = *reinterpret_cast<const uint32_t*>(static_cast<const ifreq*>(argument)->ifr_data);
    if (command == ETHTOOL_GSTRINGS) ++asked_for_names;
    if (command == ETHTOOL_GSSET_INFO && counts_are_refused) {
      errno = EOPNOTSUPP;
      return -1;
    }
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

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

// The kernel writes all names that it has, whatever room there is: without their number there is none.
TEST_F(NetdevFeaturesTest, NamesAreNotAskedForWithoutTheirNumber) {
  asked_for_names = 0;
  counts_are_refused = true;
  EXPECT_EQ(segmentation("va0"), Segmentation::kNone);
  counts_are_refused = false;
  EXPECT_EQ(asked_for_names, 0);
  EXPECT_EQ(segmentation("va0"), Segmentation::kOn);
  EXPECT_EQ(asked_for_names, 1);
}

// A tap device takes runs when its reader says that it does.
TEST_F(NetdevFeaturesTest, SegmentationThatIsOnButNotPossible) {
  run("ip tuntap add tap0 mode tap");
  EXPECT_EQ(segmentation("tap0"), Segmentation::kWithdrawn);
}

}  // namespace
}  // namespace uroce::net

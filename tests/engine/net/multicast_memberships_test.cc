// SPDX-License-Identifier: BSD-2-Clause
// What the kernel knows of our multicast memberships: joined once, left at the end, on the right netdev.
#include "engine/net/multicast_memberships.h"

#include <cerrno>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <sys/socket.h>

#include "base/unique_fd.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

class MulticastMembershipsTest : public NetViewTest {
 protected:
  void SetUp() override {
    NetViewTest::SetUp();
    if (IsSkipped()) return;
    open(1);
  }
  // /proc/net is of the thread's namespace.
  static std::string proc(const char* file) {
    std::ifstream in(std::string("/proc/thread-self/net/") + file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static bool in_v4() { return proc("igmp").find("030201EF") != std::string::npos; }  // 239.1.2.3
  static bool in_v6() {
    return proc("igmp6").find("va0             ff0e0000000000000000000000001234") != std::string::npos;
  }
  static size_t descriptors() {
    size_t count = 0;
    DIR* const directory = ::opendir("/proc/self/fd");
    while (::readdir(directory) != nullptr) ++count;
    ::closedir(directory);
    return count;
  }
  const wire::IpAddress v4_ = ip("239.1.2.3"), v6_ = ip("ff0e::1234");
};

TEST_F(MulticastMembershipsTest, JoinedAndLeft) {
  MulticastMemberships memberships;
  ASSERT_FALSE(in_v4() || in_v6());
  EXPECT_EQ(memberships.join(index_, v4_), 0);
  EXPECT_EQ(memberships.join(index_, v6_), 0);
  EXPECT_TRUE(in_v4());
  EXPECT_TRUE(in_v6()) << proc("igmp6");
  memberships.leave(v4_);
  EXPECT_FALSE(in_v4());
  EXPECT_TRUE(in_v6());
  memberships.leave(v6_);
  EXPECT_FALSE(in_v6());
  memberships.leave(v6_);
}

TEST_F(MulticastMembershipsTest, LeftAtTheEnd) {
  auto memberships = std::make_unique<MulticastMemberships>();
  ASSERT_EQ(memberships->join(index_, v4_), 0);
  memberships.reset();
  EXPECT_FALSE(in_v4());
}

TEST_F(MulticastMembershipsTest, JoiningTwiceIsLeftOnce) {
  MulticastMemberships memberships;
  const size_t before = descriptors();
  EXPECT_EQ(memberships.join(index_, v4_), 0);
  EXPECT_EQ(memberships.join(index_, v4_), 0);
  memberships.leave(v4_);
  EXPECT_FALSE(in_v4());
  EXPECT_EQ(descriptors(), before);
}

// The kernel bounds the groups of one socket (net.ipv4.igmp_max_memberships, 20).
TEST_F(MulticastMembershipsTest, ManyGroups) {
  const size_t before = descriptors();
  MulticastMemberships memberships;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(memberships.join(index_, ip("239.9.9." + std::to_string(i))), 0) << i;
  EXPECT_LE(descriptors(), before + 10) << "several groups share a socket";
  for (int i = 0; i < 100; ++i) memberships.leave(ip("239.9.9." + std::to_string(i)));
  EXPECT_EQ(descriptors(), before);
}

TEST_F(MulticastMembershipsTest, GroupsOfASocket) {
  for (const uint32_t allowed : {20u, 7u}) {
    std::ofstream("/proc/sys/net/ipv4/igmp_max_memberships") << allowed;
    EXPECT_EQ(groups_of_a_socket(), allowed);
    const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    uint32_t joined = 0;
    while (change_membership(fd.get(), true, index_, ip("239.9.9." + std::to_string(joined))) == 0) ++joined;
    EXPECT_EQ(joined, allowed);
  }
}

TEST_F(MulticastMembershipsTest, Errors) {
  MulticastMemberships memberships;
  const size_t before = descriptors();
  EXPECT_EQ(memberships.join(index_, ip("192.0.2.1")), EINVAL);
  EXPECT_EQ(memberships.join(index_, ip("2001:db8::1")), EINVAL);
  EXPECT_EQ(memberships.join(9999, v4_), ENODEV);
  EXPECT_EQ(memberships.join(9999, v6_), ENODEV);
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace uroce::net

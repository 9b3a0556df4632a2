// What people are told when the packet I/O is opened.
#include "engine/device/open_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/engine/io/veth_pair.h"

namespace uroce::engine {
namespace {

// What opening UDP sockets on a netdev that is not there says on stderr.
std::string said_about(int index, const std::string& name) {
  net::Netdev netdev;
  netdev.index = index;
  netdev.name = name;
  netdev.mtu = 1500;
  Options options;
  options.io = Options::Io::kUdp;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(std::holds_alternative<io::IoError>(open_packet_io(netdev, options)));
  return testing::internal::GetCapturedStderr();
}

// Each QP that a program creates asks again.
TEST(IoSelection, AnErrorIsSaidOnce) {
  EXPECT_THAT(said_about(1001, "nosuchdev1"), testing::HasSubstr("nosuchdev1"));
  EXPECT_EQ(said_about(1001, "nosuchdev1"), "");
  EXPECT_THAT(said_about(1002, "nosuchdev2"), testing::HasSubstr("nosuchdev2")) << "another netdev";
}

// Each thing once, as long as it stays so; the network changes more often.
TEST(IoSelection, WhatIsNotFollowedIsSaidOnce) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::enter(veth.a());
  net::Netdev netdev;
  netdev.index = veth.a().ifindex;
  netdev.name = veth.a().netdev;
  netdev.mtu = 1500;
  Options options;
  options.io = Options::Io::kAfXdp;
  options.quiet = true;
  auto result = open_packet_io(netdev, options);
  ASSERT_TRUE(std::holds_alternative<OpenedIo>(result));
  const auto said = [&](uint32_t mtu, const std::vector<std::string>& vlans) {
    netdev.mtu = mtu;
    netdev.vlans = vlans;
    testing::internal::CaptureStderr();
    std::get<OpenedIo>(result).check(netdev);
    return testing::internal::GetCapturedStderr();
  };
  using testing::AllOf, testing::HasSubstr, testing::Not;
  EXPECT_EQ(said(1500, {}), "");
  EXPECT_THAT(said(1500, {"va.7"}), AllOf(HasSubstr("uroce: va: "), HasSubstr("(va.7)")));
  EXPECT_EQ(said(1500, {"va.7"}), "");
  EXPECT_THAT(said(9000, {"va.7"}), AllOf(HasSubstr("now 9000"), Not(HasSubstr("va.7"))));
  EXPECT_EQ(said(9000, {"va.7"}), "");
  EXPECT_THAT(said(9000, {"va.7", "va.9"}), AllOf(HasSubstr("(va.7, va.9)"), Not(HasSubstr("now 9000"))));
  EXPECT_EQ(said(1500, {}), "");
  EXPECT_THAT(said(1500, {"va.7"}), HasSubstr("(va.7)")) << "again";
}

}  // namespace
}  // namespace uroce::engine

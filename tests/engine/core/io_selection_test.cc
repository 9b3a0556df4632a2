// What people are told when the packet I/O is opened.
#include "engine/io_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

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

}  // namespace
}  // namespace uroce::engine

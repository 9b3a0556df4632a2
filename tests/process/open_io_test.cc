// SPDX-License-Identifier: BSD-2-Clause
// What people are told when the packet I/O is opened.
#include "process/open_io.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "engine/device/say.h"
#include "engine/io/af_xdp/xdp_program.h"
#include "engine/io/xdp_library/xdp_library.h"
#include "engine/net/multicast_memberships.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"

namespace {

bool module_is_missing = false;

}  // namespace

// In place of linked.cc, in whose programs it cannot be missing.
std::optional<uroce::io::IoError> uroce::io::load_xdp_library() {
  if (!module_is_missing) return std::nullopt;
  return IoError{.code = ENOENT, .what = "libbpf and libxdp cannot be loaded", .remedy = "install both"};
}

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
  const auto result = open_packet_io(netdev, options);
  const auto* const error = std::get_if<io::IoError>(&result);
  EXPECT_NE(error, nullptr);
  if (error != nullptr) say_once(index, name, error->text());
  return testing::internal::GetCapturedStderr();
}

// Each QP that a program creates asks again.
TEST(IoSelection, AnErrorIsSaidOnce) {
  EXPECT_THAT(said_about(1001, "nosuchdev1"), testing::HasSubstr("nosuchdev1"));
  EXPECT_EQ(said_about(1001, "nosuchdev1"), "");
  EXPECT_THAT(said_about(1002, "nosuchdev2"), testing::HasSubstr("nosuchdev2")) << "another netdev";
}

// As a device does.
std::string said_of(const std::string& name, const std::vector<std::string>& texts) {
  testing::internal::CaptureStderr();
  for (const std::string& text : texts) say(name, text);
  return testing::internal::GetCapturedStderr();
}

// What the packet I/O on a netdev is without a wish, and what is said about it.
std::pair<std::variant<OpenedIo, io::IoError>, std::string> open_with(const net::Netdev& netdev,
                                                                      const Options& options = {}) {
  auto opened = open_packet_io(netdev, options);
  const auto* const error = std::get_if<io::IoError>(&opened);
  std::string text = said_of(netdev.name, {error != nullptr ? error->text() : std::get<OpenedIo>(opened).introduction});
  return {std::move(opened), std::move(text)};
}

net::Netdev as_netdev(const io::test::VethPair::End& end) {
  net::Netdev netdev;
  netdev.index = end.ifindex;
  netdev.name = end.netdev;
  netdev.mtu = 1500;
  netdev.kind = "veth";
  return netdev;
}

void keep_no_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
}

void lock_little_memory() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
  const rlimit little{65536, 65536};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &little), 0);
}

// Whether it can be foreseen, or shows when AF_XDP is opened. In a child, which ends with what it has.
TEST(IoSelection, UdpWhereAfXdpWouldBeBestAndCannotBeHad) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::run(veth.a(), "ethtool -K va tx-udp-segmentation off");
  io::test::VethPair::enter(veth.a());
  net::Netdev wire = as_netdev(veth.a());
  wire.kind.clear();
  const auto said_after = [&](void (*prepare)()) {
    int channel[2];
    EXPECT_EQ(pipe(channel), 0);
    const pid_t child = fork();
    if (child == 0) {
      prepare();
      const std::string said = open_with(wire).second;
      _exit(write(channel[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    waitpid(child, nullptr, 0);
    std::string said(4096, '\0');
    said.resize(static_cast<size_t>(std::max<ssize_t>(0, read(channel[0], said.data(), said.size()))));
    close(channel[0]);
    close(channel[1]);
    return said;
  };
  EXPECT_THAT(said_after(keep_no_capabilities),
              testing::StartsWith("uroce: va: udp (not AF_XDP: AF_XDP on va lacks CAP_"));
  EXPECT_THAT(said_after(lock_little_memory),
              testing::StartsWith("uroce: va: udp (not AF_XDP: locked memory for AF_XDP"));
  EXPECT_EQ(said_after([] { module_is_missing = true; }),
            "uroce: va: udp (not AF_XDP: libbpf and libxdp cannot be loaded; install both)\n");
}

TEST(IoSelection, UdpWhereTheNetdevTakesRunsElseAfXdp) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::enter(veth.a());
  const net::Netdev netdev = as_netdev(veth.a());
  EXPECT_EQ(open_with(netdev).second, "uroce: va: udp (tx-udp-segmentation is on)\n");
  io::test::VethPair::run(veth.a(), "ethtool -K va tx-udp-segmentation off");
  EXPECT_THAT(open_with(netdev).second, testing::StartsWith("uroce: va: udp (a virtual netdev"));
  net::Netdev wire = netdev;  // as if it were none
  wire.kind.clear();
  EXPECT_THAT(open_with(wire).second, testing::StartsWith("uroce: va: af_xdp, native, "));
  net::Netdev lower = wire;
  lower.vlans = {"va.7"};
  EXPECT_THAT(open_with(lower).second, testing::StartsWith("uroce: va: udp (not AF_XDP: "));
}

// AF_XDP without broker takes all packets, and so is not opened where somebody has sockets on the port.
TEST(IoSelection, AfXdpAloneLeavesTheNetdevToWhoIsThere) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::enter(veth.a());
  const net::Netdev netdev = as_netdev(veth.a());
  Options sockets, queues;
  sockets.io = Options::Io::kUdp;
  queues.io = Options::Io::kAfXdp;
  sockets.broker = queues.broker = "none";
  auto first = open_with(netdev, sockets).first;
  ASSERT_TRUE(std::holds_alternative<OpenedIo>(first));
  EXPECT_THAT(open_with(netdev, queues).second, testing::HasSubstr("port 4791 on va: Address already in use"));
  EXPECT_FALSE(io::attached_xdp_program(netdev.index));
  first = io::IoError{};
  EXPECT_THAT(open_with(netdev, queues).second, testing::StartsWith("uroce: va: af_xdp, native, copy, 1 queue"));
}

// What several openings of the netdev, one after the other and all kept, say under one broker. In a child, whose only
// broker it is.
std::string said_under_a_broker(const net::Netdev& netdev, const std::vector<Options::Io>& wishes) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  const pid_t child = fork();
  if (child == 0) {
    broker::Kernel kernel;
    const broker::RunningBroker broker(kernel, broker::unique_address());
    Options options;
    options.broker = broker.address();
    std::string said;
    std::vector<std::variant<OpenedIo, io::IoError>> kept;
    for (const Options::Io wish : wishes) {
      options.io = wish;
      auto [opened, text] = open_with(netdev, options);
      kept.push_back(std::move(opened));
      const auto* const io = std::get_if<OpenedIo>(&kept.back());
      if (io != nullptr && io->max_groups > net::groups_of_a_socket()) said += "more groups than a socket takes";
      said += text;
    }
    _exit(write(channel[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(channel[1]);
  waitpid(child, nullptr, 0);
  std::string said(4096, '\0');
  said.resize(static_cast<size_t>(std::max<ssize_t>(0, read(channel[0], said.data(), said.size()))));
  close(channel[0]);
  return said;
}

TEST(IoSelection, OneProcessHasTheQueuesAndOthersHaveSockets) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::run(veth.a(), "ethtool -K va tx-udp-segmentation off");
  io::test::VethPair::enter(veth.a());
  net::Netdev wire = as_netdev(veth.a());
  wire.kind.clear();
  using Io = Options::Io;
  using testing::MatchesRegex;
  EXPECT_THAT(said_under_a_broker(wire, {Io::kUdp, Io::kAfXdp, Io::kUdp}),
              MatchesRegex("uroce: va: udp\nuroce: va: af_xdp, native, copy, 1 queue, and sockets\nuroce: va: udp\n"));
  EXPECT_THAT(said_under_a_broker(wire, {Io::kAuto, Io::kAuto}),
              MatchesRegex("uroce: va: af_xdp, .*\n"
                           "uroce: va: udp \\(not AF_XDP: another uroce process uses AF_XDP on va .*\\)\n"));
  EXPECT_THAT(
      said_under_a_broker(wire, {Io::kAfXdp, Io::kAfXdp}),
      MatchesRegex("uroce: va: af_xdp, .*\n"
                   "uroce: va: process [0-9]+ \\(open_io_test\\) uses AF_XDP on the netdev, .*UROCE_IO=udp.*\n"));
}

// Frames that the netdev has sent.
uint64_t frames_sent(const std::string& netdev) {
  std::ifstream table("/proc/thread-self/net/dev");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string name;
    uint64_t packets = 0, skipped = 0;
    fields >> name;
    for (int i = 0; i < 9; ++i) fields >> skipped;  // eight of reception, bytes sent
    if (fields >> packets && name == netdev + ":") return packets;
  }
  return 0;
}

// A longer run would be cut in software, packet by packet.
TEST(IoSelection, RunsAreNoLongerThanTheNetdevTakes) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::run(veth.a(), "ip link set va gso_max_size 20000");
  io::test::VethPair::enter(veth.a());
  net::Netdev netdev = as_netdev(veth.a());
  netdev.gso_max_size = 20000;
  auto result = open_with(netdev).first;
  ASSERT_TRUE(std::holds_alternative<OpenedIo>(result));
  io::PacketIo& io = *std::get<OpenedIo>(result).io.front();
  io::test::TestBurst burst;
  for (uint32_t psn = 0; psn < 64; ++psn) {
    burst.add(io::test::VethPair::envelope_v4(veth.a(), veth.b()), psn, 1024);
  }
  const uint64_t before = frames_sent("va");
  ASSERT_EQ(io.send(burst.packets()), 64u);
  EXPECT_LE(frames_sent("va") - before, 10u);
}

// Each thing once, as long as it stays so; the network changes more often.
TEST(IoSelection, WhatIsNotFollowedIsSaidOnce) {
  UROCE_SKIP_UNLESS_ROOT();
  const io::test::VethPair veth;
  io::test::VethPair::enter(veth.a());
  net::Netdev netdev = as_netdev(veth.a());
  Options options;
  options.io = Options::Io::kAfXdp;
  options.quiet = true;
  auto result = open_packet_io(netdev, options);
  ASSERT_TRUE(std::holds_alternative<OpenedIo>(result));
  const auto said = [&](uint32_t mtu, const std::vector<std::string>& vlans) {
    netdev.mtu = mtu;
    netdev.vlans = vlans;
    auto& opened = std::get<OpenedIo>(result);
    opened.follow(netdev, [](const std::function<void()>&) { ADD_FAILURE() << "VLANs are in the way"; });
    return said_of(netdev.name, opened.report(0));
  };
  using testing::AllOf, testing::HasSubstr;
  EXPECT_EQ(said(1500, {}), "");
  EXPECT_THAT(said(1500, {"va.7"}), AllOf(HasSubstr("uroce: va: "), HasSubstr("(va.7)")));
  EXPECT_EQ(said(1500, {"va.7"}), "");
  EXPECT_THAT(said(9000, {"va.7"}), HasSubstr("now 9000"));
  EXPECT_EQ(said(9000, {"va.7"}), "");
  EXPECT_THAT(said(9000, {"va.7", "va.9"}), HasSubstr("(va.7, va.9)"));
  EXPECT_EQ(said(1500, {}), "");
  EXPECT_THAT(said(1500, {"va.7"}), HasSubstr("(va.7)")) << "again";
}

}  // namespace
}  // namespace uroce::engine

// SPDX-License-Identifier: BSD-2-Clause
// Which packet I/O is chosen for a netdev, and why.
#include "process/io_choice/io_choice.h"

#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/io/veth_pair.h"

namespace uroce::engine {
namespace {

using io::test::VethPair;
using net::Segmentation;
using testing::HasSubstr;

const io::IoError kNoRights{.code = EPERM, .what = "AF_XDP lacks CAP_BPF", .remedy = "run as root"};

IoFacts facts(const char* driver, XdpMode mode, bool to_software, Segmentation segmentation) {
  IoFacts facts;
  facts.features.driver = driver;
  facts.features.udp_segmentation = segmentation;
  facts.xdp_mode = mode;
  facts.to_software = to_software;
  return facts;
}

struct Row {
  const char* driver;
  XdpMode mode;
  bool to_software;
  Segmentation segmentation;
  IoKind root, user;  // what they get
  const char* why;    // root does
};

// docs/packet-io.md.
TEST(IoChoice, ByKindOfNetdev) {
  constexpr auto kUdp = IoKind::kUdp, kAfXdp = IoKind::kAfXdp;
  constexpr auto kGeneric = XdpMode::kGeneric, kNative = XdpMode::kNative, kZeroCopy = XdpMode::kZeroCopy;
  constexpr bool kWire = false, kSoftware = true;
  const Row rows[] = {
      {"veth", kNative, kSoftware, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"veth", kNative, kSoftware, Segmentation::kWithdrawn, kUdp, kUdp, "a virtual netdev"},
      {"veth", kNative, kSoftware, Segmentation::kOff, kUdp, kUdp, "a virtual netdev"},
      {"veth", kGeneric, kSoftware, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"virtio_net", kZeroCopy, kSoftware, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"virtio_net", kZeroCopy, kSoftware, Segmentation::kOff, kUdp, kUdp, "a virtual netdev"},
      {"virtio_net", kNative, kSoftware, Segmentation::kNone, kUdp, kUdp, "a virtual netdev"},
      {"tun", kNative, kSoftware, Segmentation::kWithdrawn, kUdp, kUdp, "a virtual netdev"},
      {"macvlan", kGeneric, kSoftware, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"vmxnet3", kGeneric, kWire, Segmentation::kNone, kAfXdp, kUdp, "no tx-udp-segmentation"},
      {"ena", kNative, kWire, Segmentation::kNone, kAfXdp, kUdp, "no tx-udp-segmentation"},
      {"bnxt_en", kNative, kWire, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"bnxt_en", kNative, kWire, Segmentation::kOff, kAfXdp, kUdp, "no tx-udp-segmentation"},
      {"mlx5_core", kZeroCopy, kWire, Segmentation::kOn, kAfXdp, kUdp, "zero-copy"},
      {"mlx5_core", kGeneric, kWire, Segmentation::kOn, kUdp, kUdp, "tx-udp-segmentation is on"},
      {"i40e", kZeroCopy, kWire, Segmentation::kOff, kAfXdp, kUdp, "zero-copy"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << row.driver << ", " << row.why);
    IoFacts those = facts(row.driver, row.mode, row.to_software, row.segmentation);
    const IoChoice root = choose_io(those, Options::Io::kAuto);
    EXPECT_EQ(root.kind, row.root);
    EXPECT_THAT(root.why, HasSubstr(row.why));
    those.no_af_xdp = kNoRights;
    const IoChoice user = choose_io(those, Options::Io::kAuto);
    EXPECT_EQ(user.kind, row.user);
    EXPECT_EQ(user.why, row.root == kAfXdp ? "not AF_XDP: AF_XDP lacks CAP_BPF; run as root" : root.why);
  }
}

// lo and tunnels: what carries frames is refused, and nothing else is tried.
TEST(IoChoice, WithoutFramesThereAreSockets) {
  for (const net::LinkType type : {net::LinkType::kLoopback, net::LinkType::kIp}) {
    net::Netdev netdev;
    netdev.name = "x0";
    netdev.type = type;
    const IoFacts those = io_facts(netdev, {});
    EXPECT_EQ(choose_io(those, Options::Io::kAuto).kind, IoKind::kUdp);
    EXPECT_EQ(choose_io(those, Options::Io::kUdp).kind, IoKind::kUdp);
    for (const Options::Io io : {Options::Io::kAfXdp, Options::Io::kDpdk}) {
      const IoChoice choice = choose_io(those, io);
      EXPECT_EQ(choice.kind, IoKind::kNone);
      ASSERT_TRUE(choice.error);
      EXPECT_THAT(choice.error->text(), HasSubstr("--io udp"));
    }
  }
}

TEST(IoChoice, WhatIsAskedForIsWhatThereIs) {
  IoFacts veth = facts("veth", XdpMode::kNative, true, Segmentation::kOn);
  EXPECT_EQ(choose_io(veth, Options::Io::kAfXdp).kind, IoKind::kAfXdp);
  IoFacts wire = facts("ice", XdpMode::kZeroCopy, false, Segmentation::kNone);
  EXPECT_EQ(choose_io(wire, Options::Io::kUdp).kind, IoKind::kUdp);
  EXPECT_EQ(choose_io(veth, Options::Io::kDpdk).kind, IoKind::kDpdk);
  veth.no_af_xdp = kNoRights;
  EXPECT_EQ(choose_io(veth, Options::Io::kAfXdp).kind, IoKind::kAfXdp) << "to fail with its error, not to fall back";
}

// UDP sockets would get no packets.
TEST(IoChoice, NoneOnANetdevThatAnotherProcessHas) {
  IoFacts taken = facts("veth", XdpMode::kNative, true, Segmentation::kOn);
  taken.taken = io::IoError{.code = EBUSY, .what = "another uroce process", .remedy = "one per netdev"};
  for (const Options::Io wanted : {Options::Io::kAuto, Options::Io::kAfXdp, Options::Io::kUdp}) {
    EXPECT_EQ(choose_io(taken, wanted).kind, IoKind::kNone);
    EXPECT_EQ(choose_io(taken, wanted).why, "another uroce process; one per netdev");
  }
}

net::Netdev as_netdev(const VethPair::End& end) {
  net::Netdev netdev;
  netdev.index = end.ifindex;
  netdev.name = end.netdev;
  netdev.kind = "veth";
  return netdev;
}

class IoFactsOfVeth : public testing::Test {
 protected:
  void SetUp() override { UROCE_SKIP_UNLESS_ROOT(); }
};

TEST_F(IoFactsOfVeth, AreWhatTheKernelSays) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const IoFacts now = io_facts(as_netdev(veth.a()), {});
  EXPECT_EQ(now.features.driver, "veth");
  EXPECT_EQ(now.features.udp_segmentation, Segmentation::kOn);
  EXPECT_EQ(now.xdp_mode, XdpMode::kNative);
  EXPECT_TRUE(now.to_software);
  EXPECT_FALSE(now.attached || now.taken || now.no_af_xdp);
  EXPECT_EQ(io_facts(as_netdev(veth.a()), {.force_generic_xdp = true}).xdp_mode, XdpMode::kGeneric);
}

TEST_F(IoFactsOfVeth, TellWhatKeepsFromAfXdp) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const auto obstacle = [&](const net::Netdev& netdev) {
    const IoFacts now = io_facts(netdev, {});
    return now.no_af_xdp ? now.no_af_xdp->text() : "";
  };
  net::Netdev netdev = as_netdev(veth.a());
  netdev.vlans = {"va.7"};
  EXPECT_THAT(obstacle(netdev), HasSubstr("va.7"));
  VethPair::run(veth.a(), "ip link set va down");
  EXPECT_THAT(obstacle(as_netdev(veth.a())), HasSubstr("is down"));
}

// There the kernel loads no BPF program, though all capabilities are there.
TEST_F(IoFactsOfVeth, TellOfUserNamespaces) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);
    _exit(io_facts(as_netdev(veth.a()), {}).no_af_xdp ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(IoFactsOfVeth, TellOfNoneWithoutProc) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const pid_t child = fork();
  if (child == 0) {
    if (chroot("/dev") != 0 || access("/proc", F_OK) == 0) _exit(2);
    _exit(io_facts(as_netdev(veth.a()), {}).no_af_xdp ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace uroce::engine

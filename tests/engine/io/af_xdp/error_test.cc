// SPDX-License-Identifier: BSD-2-Clause
// What a user is told when AF_XDP cannot be opened. Each case runs in a child that gives up what it must not have.
#include "engine/io/af_xdp/error.h"

#include <bpf/bpf.h>
#include <cerrno>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/if_link.h>
#include <optional>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <vector>

#include "engine/io/af_xdp/af_xdp.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::io::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

IoResult<AfXdp> open_on(const VethPair::End& end, const std::vector<std::string>& vlans = {},
                        std::optional<wire::QpnRange> qpns = {}) {
  AfXdpConfig config;
  config.vlans = vlans;
  config.qpns = qpns;
  config.netdev = end.netdev;
  config.ifindex = end.ifindex;
  return AfXdp::open(config);
}

std::string text_of(const IoResult<AfXdp>& result) {
  const IoError* error = std::get_if<IoError>(&result);
  return error == nullptr ? "opened" : std::to_string(error->code) + " | " + error->what + " | " + error->remedy;
}

// The outcome of opening in a child process after `prepare`: "opened" or the error.
std::string open_in_child(const VethPair::End& end, const std::function<void()>& prepare) {
  int channel[2];
  if (pipe(channel) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child == 0) {
    VethPair::enter(end);
    prepare();
    const std::string text = text_of(open_on(end));
    _exit(write(channel[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(channel[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(channel[0], text.data(), text.size());
  close(channel[0]);
  waitpid(child, nullptr, 0);
  return text.substr(0, static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

constexpr int kCapBpf = 39;

void keep_only(const std::vector<int>& capabilities) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  for (const int capability : capabilities) {
    data[capability / 32].effective |= 1U << (capability % 32);
    data[capability / 32].permitted |= 1U << (capability % 32);
  }
  if (syscall(SYS_capset, &header, data) != 0) _exit(2);
}

class AfXdpError : public testing::Test {
 protected:
  void SetUp() override { UROCE_SKIP_UNLESS_ROOT(); }
};

TEST_F(AfXdpError, NetdevDown) {
  const VethPair veth;
  VethPair::run(veth.a(), "ip link set dev va down");
  VethPair::enter(veth.a());
  EXPECT_EQ(text_of(open_on(veth.a())), std::to_string(ENETDOWN) + " | netdev va is down | ip link set dev va up");
}

// What stands above a veth end gets its frames without their tags.
TEST_F(AfXdpError, VlansAboveWhoseTagsNobodySees) {
  const VethPair veth;
  VethPair::enter(veth.a());
  EXPECT_THAT(text_of(open_on(veth.a(), {"va.7", "va.9"})),
              AllOf(HasSubstr("carries VLAN netdevs (va.7, va.9)"), HasSubstr("ethtool -K va rxvlan off")));
  EXPECT_EQ(attached_xdp_program(veth.a().ifindex), std::nullopt);
}

TEST_F(AfXdpError, MissingCapabilitiesAreNamed) {
  const VethPair veth;
  EXPECT_THAT(open_in_child(veth.a(), [] { keep_only({}); }),
              HasSubstr("AF_XDP on va lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"));
  EXPECT_THAT(open_in_child(veth.a(), [] { keep_only({CAP_NET_RAW, kCapBpf}); }), HasSubstr("lacks CAP_NET_ADMIN |"));
  EXPECT_THAT(open_in_child(veth.a(), [] { keep_only({CAP_NET_ADMIN, CAP_NET_RAW}); }), HasSubstr("lacks CAP_BPF |"));
  EXPECT_THAT(open_in_child(veth.a(), [] { keep_only({CAP_NET_ADMIN, kCapBpf}); }), HasSubstr("lacks CAP_NET_RAW |"));
}

// Lowers the limit, which needs no privilege, and keeps exactly the capabilities that the case above asks for.
std::function<void()> memlock_of(size_t bytes) {
  return [bytes] {
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(2);
    keep_only({CAP_NET_RAW, CAP_NET_ADMIN, kCapBpf});
  };
}

TEST_F(AfXdpError, TheNamedCapabilitiesAndTheUsualMemlockAreEnough) {
  const VethPair veth({.queues = 2});
  EXPECT_EQ(open_in_child(veth.a(), memlock_of(8 << 20)), "opened");
  EXPECT_EQ(open_in_child(veth.a(), memlock_of(1 << 20)), "opened");
}

TEST_F(AfXdpError, MemlockTooLow) {
  const VethPair veth;
  EXPECT_THAT(open_in_child(veth.a(), memlock_of(64 << 10)),
              AllOf(HasSubstr("RLIMIT_MEMLOCK is 64 KiB for all that this user locks, 256 KiB more are needed"),
                    HasSubstr("ulimit -l unlimited")));
}

TEST_F(AfXdpError, AnotherUroceProcess) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const IoResult<AfXdp> first = open_on(veth.a());
  ASSERT_EQ(text_of(first), "opened");
  EXPECT_THAT(text_of(open_on(veth.a())),
              AllOf(HasSubstr("another uroce process uses AF_XDP on va without broker (XDP program id "),
                    HasSubstr("has the netdev for itself")));
}

TEST_F(AfXdpError, AnotherUroceProcessThatShares) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const IoResult<AfXdp> first = open_on(veth.a(), {}, wire::QpnRange{1 << 14, 1 << 14});
  ASSERT_EQ(text_of(first), "opened");
  EXPECT_THAT(text_of(open_on(veth.a())), AllOf(HasSubstr("another uroce process uses AF_XDP on va (XDP program id "),
                                                HasSubstr("one process per netdev")));
}

TEST_F(AfXdpError, ForeignXdpProgram) {
  const VethPair veth;
  VethPair::enter(veth.a());
  // The smallest XDP program: r0 = XDP_PASS; exit.
  const bpf_insn instructions[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const int program = bpf_prog_load(BPF_PROG_TYPE_XDP, "somebody_else", "GPL", instructions, 2, nullptr);
  ASSERT_GE(program, 0);
  for (const uint32_t mode : {XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE}) {
    ASSERT_EQ(bpf_xdp_attach(veth.a().ifindex, program, mode, nullptr), 0);
    const auto attached = attached_xdp_program(veth.a().ifindex);
    ASSERT_TRUE(attached.has_value());
    EXPECT_THAT(text_of(open_on(veth.a())), AllOf(HasSubstr("netdev va has another XDP program attached (id " +
                                                            std::to_string(attached->id) + ", name somebody_else)"),
                                                  HasSubstr("ip link set dev va xdp off")));
    ASSERT_EQ(bpf_xdp_detach(veth.a().ifindex, mode, nullptr), 0);
  }
  close(program);
  EXPECT_EQ(text_of(open_on(veth.a())), "opened");
}

// The texts for what this machine cannot produce.
TEST(AfXdpErrorText, NamesCauseAndRemedy) {
  EXPECT_THAT(socket_error("eth0", 3, EBUSY).what, HasSubstr("eth0 queue 3: another AF_XDP socket holds the queue"));
  EXPECT_THAT(socket_error("eth0", 0, EAFNOSUPPORT).remedy, HasSubstr("CONFIG_XDP_SOCKETS"));
  EXPECT_THAT(umem_error("eth0", EAFNOSUPPORT, 1).what, HasSubstr("this kernel has no AF_XDP"));
  EXPECT_THAT(program_load_error("eth0", EINVAL).remedy, HasSubstr("Linux 5.9"));
}

}  // namespace
}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// Reading what the kernel says about itself.
#include "cli/host_probe.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace uroce::cli {
namespace {

TEST(KernelVersion, Parse) {
  EXPECT_EQ(parse_kernel_version("6.1.0-18-amd64"), (KernelVersion{6, 1}));
  EXPECT_EQ(parse_kernel_version("5.10"), (KernelVersion{5, 10}));
  EXPECT_EQ(parse_kernel_version("6"), std::nullopt);
  EXPECT_EQ(parse_kernel_version("6."), std::nullopt);
  EXPECT_EQ(parse_kernel_version("linux"), std::nullopt);
  EXPECT_EQ(parse_kernel_version(""), std::nullopt);
}

TEST(KernelVersion, ComparesNumbersNotText) {
  EXPECT_LT((KernelVersion{5, 9}), (KernelVersion{5, 10}));
}

constexpr const char* kProcNetUdp =
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer "
    "drops\n"
    "  120: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18403 2 "
    "0000000000000000 0\n"
    "  121: 0100007F:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18404 2 "
    "0000000000000000 0\n"
    "  122: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 "
    "00:00000000 00000000     0        0 0 2 0000000000000000 0\n"
    "  garbage\n";

TEST(BoundInodes, FindsThePortOnly) {
  EXPECT_THAT(bound_inodes(kProcNetUdp, 4791), testing::ElementsAre(18403, 0));
}

TEST(BoundInodes, NothingInEmptyTable) {
  EXPECT_THAT(bound_inodes("", 4791), testing::IsEmpty());
}

constexpr int kInUse = 2;

UniqueFd bind_to_port(uint32_t host_address) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // no netdev may have it
  setsockopt(fd.get(), IPPROTO_IP, IP_FREEBIND, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(4791);
  address.sin_addr.s_addr = htonl(host_address);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? std::move(fd) : UniqueFd();
}

// In a network namespace of its own, if there can be one: tests beside this one may have the port on this host.
int name_this_process() {
  static_cast<void>(!unshare(CLONE_NEWNET));
  if (!roce_port_holders().empty()) return kInUse;
  const UniqueFd first = bind_to_port(INADDR_LOOPBACK), second = bind_to_port(INADDR_LOOPBACK + 1);
  if (!first || !second) return kInUse;
  const std::vector<PortHolder> holders = roce_port_holders();
  return holders.size() == 1 && holders[0].process.starts_with(std::to_string(getpid()) + " (") ? 0 : 1;
}

// What `steps` return, in a process of its own; kInUse is a reason to skip the test.
int status_of(int (*steps)()) {
  const pid_t child = fork();
  if (child == 0) _exit(steps());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(RocePortHolders, NamesThisProcess) {
  const int status = status_of(name_this_process);
  if (status == kInUse) GTEST_SKIP() << "UDP port 4791 is in use on this host";
  EXPECT_EQ(status, 0);
}

// Each of them has a socket at an address of its own.
int name_many_processes() {
  static_cast<void>(!unshare(CLONE_NEWNET));
  if (!roce_port_holders().empty()) return kInUse;
  for (int i = 0; i < 70; ++i) {
    const UniqueFd fd = bind_to_port(INADDR_LOOPBACK + static_cast<uint32_t>(i));
    if (!fd) return kInUse;
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) pause();
    }
  }
  const std::vector<PortHolder> holders = roce_port_holders();
  if (holders.size() != 65 || holders.back().unknown != 70 - 64) return 1;
  const auto has_name = [](const PortHolder& holder) { return !holder.process.empty() && holder.unknown == 0; };
  return std::all_of(holders.begin(), holders.end() - 1, has_name) ? 0 : 1;
}

TEST(RocePortHolders, NamesSomeOfMany) {
  const int status = status_of(name_many_processes);
  if (status == kInUse) GTEST_SKIP() << "UDP port 4791 is in use on this host";
  EXPECT_EQ(status, 0);
}

TEST(PrivilegeProblem, NamesWhatIsMissingAndTheWayOut) {
  EXPECT_THAT(privilege_problem({.missing = "CAP_NET_RAW"}),
              testing::AllOf(testing::HasSubstr("CAP_NET_RAW"), testing::HasSubstr("--io udp")));
  EXPECT_THAT(privilege_problem({.user_namespace = true}), testing::HasSubstr("user namespace"));
}

}  // namespace
}  // namespace uroce::cli

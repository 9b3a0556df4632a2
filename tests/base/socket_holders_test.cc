// SPDX-License-Identifier: BSD-2-Clause
// Who has sockets open: found in one look, however many sockets and descriptors there are.
#include "base/socket_holders.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace uroce {
namespace {

UniqueFd make_socket() {
  return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

uint64_t inode_of(const UniqueFd& socket) {
  struct stat status {};
  EXPECT_EQ(fstat(socket.get(), &status), 0);
  return status.st_ino;
}

Time in_a_while() {
  return monotonic_now() + std::chrono::seconds(20);
}

// A process that has what this one has, until this is gone.
class Copy {
 public:
  Copy() : child_(fork()) {
    while (child_ == 0) pause();
  }
  ~Copy() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  bool is(const SocketHolder& holder) const { return holder.process.starts_with(std::to_string(child_) + " ("); }

 private:
  const pid_t child_;
};

bool is_this_process(const SocketHolder& holder) {
  return holder.process.starts_with(std::to_string(getpid()) + " (");
}

TEST(SocketHolders, OneOfManySocketsNamesTheProcess) {
  const UniqueFd own = make_socket(), other = make_socket();
  std::vector<uint64_t> inodes{inode_of(own), inode_of(other), inode_of(own)};
  for (uint64_t none = 1; none <= 100'000; ++none) inodes.push_back(UINT64_MAX - none);
  const SocketHolders found = find_socket_holders(inodes, 64, in_a_while());
  ASSERT_EQ(found.processes.size(), 1u);
  EXPECT_TRUE(is_this_process(found.processes[0]));
  EXPECT_EQ(found.processes[0].inode, std::min(own.get(), other.get()) == own.get() ? inodes[0] : inodes[1]);
  EXPECT_EQ(found.sockets_left, 100'000u);
  EXPECT_TRUE(found.is_whole);
}

TEST(SocketHolders, NoMoreProcessesThanAreWanted) {
  std::vector<uint64_t> inodes;
  std::vector<std::unique_ptr<Copy>> copies;
  for (int i = 0; i < 4; ++i) {
    const UniqueFd only = make_socket();
    inodes.push_back(inode_of(only));
    copies.push_back(std::make_unique<Copy>());
  }
  SocketHolders found = find_socket_holders(inodes, 64, in_a_while());
  ASSERT_EQ(found.processes.size(), 4u);
  for (const auto& copy : copies) {
    EXPECT_EQ(std::count_if(found.processes.begin(), found.processes.end(),
                            [&copy](const SocketHolder& each) { return copy->is(each); }),
              1);
  }
  EXPECT_EQ(found.sockets_left, 0u);
  found = find_socket_holders(inodes, 3, in_a_while());
  EXPECT_EQ(found.processes.size(), 3u);
  EXPECT_EQ(found.sockets_left, 1u);
  EXPECT_FALSE(found.is_whole);
}

TEST(SocketHolders, ASocketOfSeveralCountsOnce) {
  const UniqueFd shared = make_socket();
  const Copy copy;
  const SocketHolders found = find_socket_holders({inode_of(shared)}, 64, in_a_while());
  ASSERT_EQ(found.processes.size(), 1u);
  EXPECT_TRUE(copy.is(found.processes[0]) || is_this_process(found.processes[0]));
}

TEST(SocketHolders, NoTimeNoSearch) {
  const UniqueFd own = make_socket();
  const SocketHolders found = find_socket_holders({inode_of(own)}, 64, monotonic_now());
  EXPECT_TRUE(found.processes.empty());
  EXPECT_EQ(found.sockets_left, 1u);
  EXPECT_FALSE(found.is_whole);
}

}  // namespace
}  // namespace uroce

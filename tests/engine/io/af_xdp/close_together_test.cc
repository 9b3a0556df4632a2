// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/close_together.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <optional>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/engine/io/exchange.h"

namespace uroce::io::test {
namespace {

// A TCP connection over loopback whose sender cannot be closed (SO_LINGER) before the receiver has taken what is under
// way.
class Clogged {
 public:
  Clogged() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    sender_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(sender_, reinterpret_cast<sockaddr*>(&address), size), 0);
    receiver_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const linger forever{1, 3600};
    EXPECT_EQ(setsockopt(sender_, SOL_SOCKET, SO_LINGER, &forever, sizeof(forever)), 0);
    const std::array<char, 4096> bytes{};
    while (send(sender_, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  ~Clogged() { close(receiver_); }
  Clogged(const Clogged&) = delete;
  Clogged& operator=(const Clogged&) = delete;

  int sender() const { return sender_; }
  // Takes all until the sender is closed.
  void drain() const {
    std::array<char, 65536> bytes;
    while (recv(receiver_, bytes.data(), bytes.size(), 0) > 0) {
    }
  }

 private:
  int sender_ = -1;
  int receiver_ = -1;
};

std::set<int> open_descriptors() {
  std::set<int> all;
  DIR* const directory = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(directory)) all.insert(std::atoi(entry->d_name));
  all.erase(dirfd(directory));
  closedir(directory);
  return all;
}

size_t closing_threads() {
  size_t count = 0;
  DIR* const directory = opendir("/proc/self/task");
  while (const dirent* const entry = readdir(directory)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(file, name) && name == "uroce close") ++count;
  }
  closedir(directory);
  return count;
}

TEST(CloseTogether, HoldsWhatIsClosedMeanwhile) {
  const std::set<int> before = open_descriptors();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  std::optional<CloseTogether> closing(std::in_place);
  closing->hold(ends[1]);
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN) << "there is a writer";
  closing.reset();
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(CloseTogether, TakesWhatIsNoDescriptor) {
  CloseTogether closing;
  closing.hold(-1);
}

// None can be closed before all are being closed.
TEST(CloseTogether, ClosesAllAtTheSameTime) {
  constexpr size_t kCount = 8;
  const std::vector<Clogged> connections(kCount);
  std::thread closer([&connections] {
    CloseTogether closing;
    for (const Clogged& connection : connections) {
      closing.hold(connection.sender());
      close(connection.sender());
    }
  });
  EXPECT_TRUE(eventually([] { return closing_threads() == kCount - 1; }));
  for (const Clogged& connection : connections) connection.drain();
  closer.join();
  EXPECT_EQ(closing_threads(), 0u);
}

TEST(CloseTogether, ClosesMoreThanItHasThreadsFor) {
  const std::set<int> before = open_descriptors();
  {
    CloseTogether closing;
    for (int i = 0; i < 100; ++i) closing.hold(STDERR_FILENO);
    EXPECT_EQ(open_descriptors().size(), before.size() + 100);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(CloseTogether, ChildrenHoldNothing) {
  const std::set<int> before = open_descriptors();
  CloseTogether closing;
  closing.hold(STDERR_FILENO);
  const pid_t child = fork();
  if (child == 0) _exit(open_descriptors() == before ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace uroce::io::test

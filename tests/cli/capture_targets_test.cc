// SPDX-License-Identifier: BSD-2-Clause
// The processes that `uroce capture` finds, some of which do not answer.
#include "cli/capture_targets.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <new>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/message_socket.h"
#include "capture/nameless_socket.h"
#include "capture/protocol.h"
#include "tests/held_files.h"

namespace uroce::cli {
namespace {

namespace protocol = io::capture_protocol;

// Processes that answer when so many of them have been asked.
class CaptureTargets : public testing::Test {
 protected:
  static constexpr int kProcesses = 5;
  struct Shared {
    std::atomic<int> ready{0}, asked{0}, wanted{kProcesses};
    std::atomic<pid_t> hostile{0};  // passes on a file that nobody can close
  };

  void SetUp() override {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t pid = fork();
      if (pid == 0) answer();
      pids_.push_back(pid);
    }
    ASSERT_TRUE(comes_true([&] { return shared_->ready == kProcesses; }));
  }
  void TearDown() override {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }

  template <class Condition>
  static bool comes_true(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  [[noreturn]] void answer() const {
    io::NamelessSocket own;
    if (io::open_nameless_socket(own) != 0) _exit(1);
    ++shared_->ready;
    while (true) {
      pollfd comes{own.socket, POLLIN, 0};
      poll(&comes, 1, -1);
      const int client = accept4(own.socket, nullptr, nullptr, SOCK_CLOEXEC);
      protocol::Message message;
      if (client < 0 || protocol::receive(client, message, nullptr, 20'000) != 0) continue;
      ++shared_->asked;
      if (shared_->hostile == getpid()) {
        const std::array<uint8_t, 8> nothing{};
        static test::HeldFiles files(1);
        const UniqueFd file = files.take();
        send_message(client, nothing, std::array{file.get()});
      }
      comes_true([&] { return shared_->asked >= shared_->wanted; });
      message.kind = protocol::Kind::kDescription;
      protocol::put_text(message.text, "fake");
      protocol::send(client, message);
      close(client);
    }
  }
  std::vector<int> found(const std::string& wanted) const {
    std::vector<int> pids;
    for (const CaptureTarget& target : find_capture_targets(wanted)) {
      if (std::find(pids_.begin(), pids_.end(), target.pid) != pids_.end()) pids.push_back(target.pid);
    }
    return pids;
  }

  Shared* shared_ = nullptr;
  std::vector<pid_t> pids_;
};

TEST_F(CaptureTargets, AreAskedTogether) {
  std::vector<int> all(pids_.begin(), pids_.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(found(""), all);
}

TEST_F(CaptureTargets, NobodyIsAskedButWhoIsNamed) {
  shared_->wanted = 1;
  EXPECT_EQ(found(std::to_string(pids_[2])), std::vector<int>{pids_[2]});
  EXPECT_EQ(shared_->asked, 1);
}

TEST_F(CaptureTargets, NobodyWaitsForWhatOneOfThemPassesOn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for memory that nobody fills";
  shared_->hostile = pids_[0];
  std::vector<int> others(pids_.begin() + 1, pids_.end());
  std::sort(others.begin(), others.end());
  EXPECT_EQ(found(""), others);
}

}  // namespace
}  // namespace uroce::cli

// SPDX-License-Identifier: BSD-2-Clause
// The processes that `uroce capture` finds, some of which do not answer.
#include "cli/capture_targets.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <map>
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
    std::atomic<int> unanswered{0};
    std::atomic<pid_t> hostile{0};  // passes on a file that nobody can close
  };

  void SetUp() override {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    start(kProcesses, geteuid(), [this] { answer(); });
  }
  void TearDown() override {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }

  // They do `listens` and do not return.
  template <class Listens>
  void start(int count, uid_t user, Listens&& listens) {
    const int ready = shared_->ready + count;
    for (int i = 0; i < count; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        if (user != geteuid() && (setgid(user) != 0 || setuid(user) != 0)) _exit(1);
        listens();
      }
      pids_.push_back(pid);
    }
    ASSERT_TRUE(comes_true([&] { return shared_->ready == ready; }));
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
  io::NamelessSocket listen() const {
    io::NamelessSocket own;
    if (io::open_nameless_socket(own) != 0) _exit(1);
    ++shared_->ready;
    return own;
  }
  [[noreturn]] void answer_nobody() const {
    const io::NamelessSocket own = listen();
    pollfd comes{own.socket, POLLIN, 0};
    poll(&comes, 1, -1);
    ++shared_->unanswered;
    while (true) pause();
  }
  [[noreturn]] void answer() const { answer_at(listen()); }
  [[noreturn]] void answer_at(const io::NamelessSocket& own) const {
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

// Each of them is waited for, but not one after the other, and only where there is time.
TEST_F(CaptureTargets, ManyThatDoNotAnswerHideNobodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  constexpr uid_t kHostile = 65533, kOther = 65532;
  constexpr int kMany = 200;
  shared_->wanted = 1;
  start(1, kOther, [this] { answer(); });
  std::vector<int> others = pids_;
  std::sort(others.begin(), others.end());
  start(kMany, kHostile, [this] { answer_nobody(); });
  EXPECT_EQ(found(""), others);
  EXPECT_LT(shared_->unanswered, kMany);
}

// As a process that listens and then becomes su, which waits for a password: /proc says that it is root's.
TEST_F(CaptureTargets, WhoOnlySeemsToBeRootsIsNotAsked) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  constexpr uid_t kHostile = 65533;
  shared_->wanted = 1;
  std::vector<int> others(pids_.begin(), pids_.end());
  std::sort(others.begin(), others.end());
  start(1, geteuid(), [this] {
    if (seteuid(kHostile) != 0) _exit(1);
    const io::NamelessSocket own = listen();
    if (seteuid(0) != 0) _exit(1);
    answer_at(own);
  });
  EXPECT_EQ(found(""), others);
}

TEST_F(CaptureTargets, AreOfWhoListens) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  constexpr uid_t kOther = 65532;
  shared_->wanted = 1;
  start(1, kOther, [this] { answer(); });
  std::map<int, uid_t> users;
  for (const CaptureTarget& target : find_capture_targets("")) users[target.pid] = target.user;
  EXPECT_EQ(users[pids_.front()], geteuid());
  EXPECT_EQ(users[pids_.back()], kOther);
  start(1, geteuid(), [this] {
    if (seteuid(kOther) != 0) _exit(1);
    const io::NamelessSocket own = listen();
    if (seteuid(0) != 0) _exit(1);
    answer_at(own);
  });
  const std::vector<int> all = found("");
  EXPECT_EQ(std::count(all.begin(), all.end(), pids_.back()), 0) << "it has become root's since";
}

TEST(ChooseCaptureTarget, NobodyElsePassesForRootsBroker) {
  std::vector<CaptureTarget> targets(3);
  targets[0].pid = 1;
  targets[1].pid = 2;
  targets[2].pid = 3;
  for (CaptureTarget& target : targets) target.program = "uroced";
  EXPECT_FALSE(choose_capture_target(targets, "uroced").target) << "of users of whom nothing is known";
  targets[1].user = 0;
  const auto chosen = choose_capture_target(targets, "uroced").target;
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->pid, 2);
}

}  // namespace
}  // namespace uroce::cli

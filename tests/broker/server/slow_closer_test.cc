// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/slow_closer.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/concat.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/children.h"
#include "tests/held_files.h"
#include "tests/slow_socket.h"

namespace uroce::broker {
namespace {

constexpr size_t kEnough = 64;

bool always(uid_t) {
  return true;
}

// A pipe: whether all copies of its writing end have been closed is seen at the other one.
struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reads.reset(ends[0]);
    writes.reset(ends[1]);
  }
  bool is_closed() const {
    pollfd wait{reads.get(), 0, 0};
    return poll(&wait, 1, 0) == 1 && (wait.revents & POLLHUP) != 0;
  }
  UniqueFd reads, writes;
};

// When the one before has nothing of others open any more.
template <class HasTime>
std::optional<uid_t> work(SlowCloser& closer, const HasTime& has_time) {
  EXPECT_TRUE(comes_true([&] { return !closer.is_starting(); }));
  return closer.work(has_time);
}

TEST(SlowCloser, OneProcessClosesAllOfAUser) {
  SlowCloser closer(kEnough);
  std::array<Pipe, 6> pipes;
  for (uid_t i = 0; i < pipes.size(); ++i) closer.add(std::move(pipes[i].writes), i % 2);
  EXPECT_EQ(closer.size(), 6u);
  EXPECT_EQ(closer.of(1), 3u);
  work(closer, always);
  EXPECT_EQ(closer.of(0), 0u);
  EXPECT_EQ(closer.of(1), 3u);
  const auto closed = [&](uid_t user) {
    return pipes[user].is_closed() && pipes[user + 2].is_closed() && pipes[user + 4].is_closed();
  };
  EXPECT_TRUE(comes_true([&] { return closed(0); }));
  EXPECT_FALSE(pipes[1].is_closed());
  EXPECT_TRUE(comes_true([&] {
    work(closer, always);
    return closed(1) && !closer.is_busy();
  }));
}

// Which the test has, and the process keeps not for a moment longer than it takes to begin.
TEST(SlowCloser, TheProcessKeepsNothingElseOpen) {
  SlowCloser closer(kEnough);
  Pipe other, pipe;
  closer.add(std::move(pipe.writes), 1);
  work(closer, always);
  other.writes.reset();
  EXPECT_TRUE(comes_true([&] { return other.is_closed() && pipe.is_closed(); }));
}

std::string file_of(const std::string& process, int descriptor) {
  std::error_code none;
  return std::filesystem::read_symlink(concat("/proc/", process, "/fd/", descriptor), none);
}

// Else it may be the last to have what another one closes, and its user's files keep it.
TEST(SlowCloser, NoneBeginsBeforeTheLastOneHasLetGo) {
  int stopped = 0;
  for (int round = 0; round < 100 && stopped < 5; ++round) {
    SlowCloser closer(1 << 20);
    for (int i = 0; i < 500; ++i) closer.add(UniqueFd(eventfd(0, EFD_CLOEXEC)), 1);  // it takes a while to begin
    Pipe pipe;
    const int descriptor = pipe.writes.get();
    const std::string file = file_of("self", descriptor);
    closer.add(std::move(pipe.writes), 2);
    ASSERT_EQ(work(closer, always), 1u);
    const pid_t begun = children_in_order().back();
    kill(begun, SIGSTOP);
    ASSERT_TRUE(comes_true([&] { return std::string("TZX").find(state_of(begun)) != std::string::npos; }));
    if (file_of(std::to_string(begun), descriptor) == file) {
      ++stopped;
      EXPECT_EQ(closer.work(always), std::nullopt);
    }
    kill(begun, SIGCONT);
    EXPECT_TRUE(comes_true([&] {
      closer.work(always);
      return pipe.is_closed() && !closer.is_busy();
    }));
  }
  EXPECT_EQ(stopped, 5) << "times while it began";
}

// It has copies of everything when it begins, which may be late.
TEST(SlowCloser, AfterTheEndAddressesAreFree) {
  for (int i = 0; i < 50; ++i) {
    UniqueFd listener;
    ASSERT_EQ(listen_at("@uroced-slow-closer-" + std::to_string(getpid()), listener), 0) << i;
    listener.reset(fcntl(listener.get(), F_DUPFD_CLOEXEC, 1000));  // is closed behind others
    Pipe pipe;
    SlowCloser closer(kEnough);
    closer.add(std::move(pipe.writes), 1);
    work(closer, always);
  }
}

TEST(SlowCloser, NobodyWaitsForWhatLingers) {
  SlowCloser closer(kEnough);
  for (uid_t user = 0; user < 8; ++user) closer.add(test::slow_socket(), user);
  for (int turn = 0; turn < 8; ++turn) work(closer, always);
  EXPECT_EQ(closer.size(), 0u);
  EXPECT_TRUE(comes_true([&] {
    work(closer, always);
    return !closer.is_busy();
  }));
}

TEST(SlowCloser, WhenTooMuchWaitsWhoHasTheMostGetsAnotherProcess) {
  SlowCloser closer(4);
  test::HeldFiles files(SlowCloser::kMostOfUser);
  for (size_t i = 0; i < SlowCloser::kMostOfUser; ++i) {
    Pipe other;
    closer.add(files.take(), 1);
    work(closer, always);
    other.writes.reset();
    // The process has nothing open any more but what it closes; until then it has the next file, too.
    EXPECT_TRUE(comes_true([&] { return other.is_closed(); }));
  }
  std::array<Pipe, 8> pipes;
  for (size_t i = 0; i < 3; ++i) closer.add(std::move(pipes[i].writes), 1);
  work(closer, always);
  EXPECT_EQ(closer.of(1), 3u) << "they wait for those that do not end";
  for (size_t i = 3; i < pipes.size(); ++i) {
    EXPECT_FALSE(closer.is_full());
    closer.add(std::move(pipes[i].writes), i < 5 ? 2 : 1);
  }
  EXPECT_TRUE(closer.is_full());
  work(closer, always);
  EXPECT_EQ(closer.of(1), 0u);
  EXPECT_EQ(closer.of(2), 2u);
  work(closer, always);
  EXPECT_EQ(closer.size(), 0u);
  for (const Pipe& pipe : pipes) EXPECT_TRUE(comes_true([&] { return pipe.is_closed(); }));
}

// A process costs more than he has time for, however often he connects.
TEST(SlowCloser, OneProcessTakesAllOfWhoHasNoTimeWhenTooMuchWaits) {
  SlowCloser closer(4);
  const auto has_time = [](uid_t user) { return user == 1; };
  const auto add = [&closer](uid_t user) {
    Pipe pipe;
    closer.add(std::move(pipe.writes), user);
  };
  add(1);
  add(2);
  EXPECT_EQ(work(closer, has_time), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(work(closer, has_time), std::nullopt);
    add(2);
  }
  EXPECT_EQ(work(closer, has_time), 2u);
  EXPECT_EQ(closer.size(), 0u);
  add(2);
  EXPECT_EQ(work(closer, has_time), std::nullopt);
  EXPECT_EQ(work(closer, always), 2u) << "he has some again";
}

// However much one of them brings meanwhile.
TEST(SlowCloser, UsersTakeTurns) {
  SlowCloser closer(kEnough);
  test::HeldFiles files(3 * SlowCloser::kMostOfUser);
  for (const uid_t user : {3, 1, 2}) closer.add(files.take(), user);
  std::vector<uid_t> turns;
  for (int i = 0; i < 3; ++i) {
    const auto user = work(closer, always);
    ASSERT_TRUE(user);
    turns.push_back(*user);
    if (closer.of(1) == 0 && i == 0) closer.add(files.take(), 1);
  }
  EXPECT_EQ(turns, (std::vector<uid_t>{1, 2, 3}));
}

TEST(SlowCloser, TheEndOfTheBrokerIsNotWaitedForEither) {
  SlowCloser closer(kEnough);
  closer.add(test::slow_socket(), 1);
}

}  // namespace
}  // namespace uroce::broker

// SPDX-License-Identifier: BSD-2-Clause
#include "broker/slow_closer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/broker/broker_rig.h"
#include "tests/slow_socket.h"

namespace uroce::broker {
namespace {

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

TEST(SlowCloser, OneProcessClosesAllOfAUser) {
  SlowCloser closer;
  std::array<Pipe, 6> pipes;
  for (uid_t i = 0; i < pipes.size(); ++i) closer.add(std::move(pipes[i].writes), i % 2);
  EXPECT_EQ(closer.size(), 6u);
  EXPECT_EQ(closer.of(1), 3u);
  closer.work();
  EXPECT_EQ(closer.of(0), 0u);
  EXPECT_EQ(closer.of(1), 3u);
  const auto closed = [&](uid_t user) {
    return pipes[user].is_closed() && pipes[user + 2].is_closed() && pipes[user + 4].is_closed();
  };
  EXPECT_TRUE(comes_true([&] { return closed(0); }));
  EXPECT_FALSE(pipes[1].is_closed());
  EXPECT_TRUE(comes_true([&] {
    closer.work();
    return closed(1) && !closer.is_busy();
  }));
}

// Which the test has, and the process keeps not for a moment longer than it takes to begin.
TEST(SlowCloser, TheProcessKeepsNothingElseOpen) {
  SlowCloser closer;
  Pipe other, pipe;
  closer.add(std::move(pipe.writes), 1);
  closer.work();
  other.writes.reset();
  EXPECT_TRUE(comes_true([&] { return other.is_closed() && pipe.is_closed(); }));
}

// It has copies of everything when it begins, which may be late.
TEST(SlowCloser, AfterTheEndAddressesAreFree) {
  for (int i = 0; i < 50; ++i) {
    UniqueFd listener;
    ASSERT_EQ(listen_at("@uroced-slow-closer-" + std::to_string(getpid()), listener), 0) << i;
    Pipe pipe;
    SlowCloser closer;
    closer.add(std::move(pipe.writes), 1);
    closer.work();
  }
}

TEST(SlowCloser, NobodyWaitsForWhatLingers) {
  SlowCloser closer;
  for (uid_t user = 0; user < 8; ++user) closer.add(test::slow_socket(), user);
  for (int turn = 0; turn < 8; ++turn) closer.work();
  EXPECT_EQ(closer.size(), 0u);
  EXPECT_TRUE(comes_true([&] {
    closer.work();
    return !closer.is_busy();
  }));
}

TEST(SlowCloser, TheEndOfTheBrokerIsNotWaitedForEither) {
  SlowCloser closer;
  closer.add(test::slow_socket(), 1);
}

}  // namespace
}  // namespace uroce::broker

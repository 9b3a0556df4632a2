// SPDX-License-Identifier: BSD-2-Clause
// What an end of a bell can do to whoever has the other one.
#include "base/bell.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/message_socket.h"
#include "tests/slow_socket.h"

namespace uroce {
namespace {

class BellTest : public testing::Test {
 protected:
  BellTest() {
    auto [one, other] = make_bell();
    ours = std::move(one);
    theirs = std::move(other);
    EXPECT_EQ(wait_for_bell(epoll.get(), ours.get(), &ours), 0);
    EXPECT_TRUE(wakes()) << "once, unrung";
    EXPECT_EQ(take(), 1);
  }
  bool wakes() const {
    pollfd wait{epoll.get(), POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
  }
  // How many bells are told of.
  int take() const {
    epoll_event event{};
    const int count = epoll_wait(epoll.get(), &event, 1, 0);
    EXPECT_TRUE(count == 0 || event.data.ptr == &ours);
    return count;
  }

  UniqueFd ours, theirs;
  const UniqueFd epoll{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(BellTest, EachRingWakesUntilItIsTaken) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(wakes());
    ring_bell(theirs.get());
    ring_bell(theirs.get());
    EXPECT_TRUE(wakes());
    EXPECT_TRUE(wakes()) << "who only looks takes nothing";
    EXPECT_FALSE(bell_has_ended(ours.get()));
    EXPECT_TRUE(wakes());
    EXPECT_EQ(take(), 1);
    EXPECT_EQ(take(), 0);
  }
}

TEST_F(BellTest, TheEndOfTheLastOwnerIsSeen) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  theirs.reset();
  EXPECT_FALSE(bell_has_ended(ours.get())) << "the child has it";
  EXPECT_FALSE(wakes());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(wakes());
  EXPECT_EQ(take(), 1);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(bell_has_ended(ours.get()));
  ring_bell(ours.get());
}

TEST_F(BellTest, NothingCanBeSentThroughIt) {
  const int slow = test::slow_socket().release();  // nobody closes it
  const std::array<uint8_t, 1> byte{};
  for (const int end : {ours.get(), theirs.get()}) {
    EXPECT_EQ(send_message(end, byte, std::array{slow}), EPIPE);
    EXPECT_EQ(send_message(end, {}, std::array{slow}), EPIPE);
    EXPECT_EQ(::send(end, byte.data(), 1, MSG_OOB | MSG_NOSIGNAL), -1);
    EXPECT_NE(listen(end, 1), 0);
  }
}

// The byte by which the end of it would be seen.
TEST_F(BellTest, WhoReadsOfItHasLeft) {
  char byte;
  EXPECT_FALSE(bell_has_ended(ours.get()));
  EXPECT_EQ(recv(theirs.get(), &byte, 1, 0), 1);
  EXPECT_TRUE(bell_has_ended(ours.get()));
  ring_bell(theirs.get());
  EXPECT_TRUE(wakes());
  EXPECT_EQ(take(), 1);
  ring_bell(ours.get());
  EXPECT_EQ(recv(theirs.get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace uroce

// SPDX-License-Identifier: BSD-2-Clause
// Event queues: what an application can do to their descriptor, purging, order, and that nothing is allocated.
#include "abi/verbs/event_queue.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <new>
#include <poll.h>
#include <thread>
#include <unistd.h>

namespace {
thread_local bool out_of_memory = false;
}  // namespace

void* operator new(size_t size) {
  void* const memory = out_of_memory ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return out_of_memory ? nullptr : std::malloc(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace uroce::verbs {
namespace {

struct Source : EventSource {
  int number = 0;
};

class EventQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(queue_.open(fd_), 0);
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i].number = static_cast<int>(i);
  }
  void TearDown() override { close(fd_); }

  void make_non_blocking() { ASSERT_EQ(fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK), 0); }
  bool readable() {
    pollfd entry{fd_, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  void push(size_t which) { queue_.push(sources_[which]); }
  void purge(size_t which) { queue_.purge(sources_[which]); }
  // Whose event is the next; -1 and errno when there is none.
  int take() {
    int number = -1;
    queue_.take(fd_, [&](const EventSource& source) { number = static_cast<const Source&>(source).number; });
    return number;
  }

  int try_take() {
    int number = -1;
    queue_.try_take([&](const EventSource& source) { number = static_cast<const Source&>(source).number; });
    return number;
  }

  int fd_ = -1;
  EventQueue queue_;
  std::array<Source, 10> sources_;
};

TEST_F(EventQueueTest, IsReadableWhileEventsArePending) {
  EXPECT_FALSE(readable());
  push(1);
  push(2);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 1);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(readable());
}

TEST_F(EventQueueTest, NonBlockingDescriptorSaysEagain) {
  make_non_blocking();
  EXPECT_EQ(take(), -1);
  EXPECT_EQ(errno, EAGAIN);
  push(7);
  EXPECT_EQ(take(), 7);
}

TEST_F(EventQueueTest, BlocksUntilAnEventCame) {
  std::thread pusher([this] { push(3); });
  EXPECT_EQ(take(), 3);
  pusher.join();
}

TEST_F(EventQueueTest, SurvivesADescriptorMovedByTheApplication) {
  const int other = open("/dev/null", O_RDONLY);
  ASSERT_GE(other, 0);
  ASSERT_EQ(dup2(fd_, other), other);
  close(fd_);
  fd_ = other;
  push(4);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 4);
}

TEST_F(EventQueueTest, ReportsAClosedDescriptor) {
  push(5);
  EXPECT_FALSE(queue_.take(-1, [](const EventSource&) {}));
  EXPECT_EQ(errno, EBADF);
}

TEST_F(EventQueueTest, PurgedEventsLeaveTheDescriptorToo) {
  make_non_blocking();
  push(1);
  push(2);
  push(1);
  purge(1);
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(readable());
  EXPECT_EQ(take(), -1);
}

// The thread that reports an event takes it itself; what else it reports is for others, whose descriptor tells of it.
TEST_F(EventQueueTest, WhoReportsAnEventTakesItWithoutItsDescriptor) {
  make_non_blocking();
  EXPECT_EQ(try_take(), -1);
  {
    const EventQueue::Taker taker(queue_);
    push(1);
  }
  EXPECT_FALSE(readable());
  EXPECT_TRUE(queue_.pending());
  EXPECT_EQ(try_take(), 1);
  EXPECT_FALSE(queue_.pending());
  {
    const EventQueue::Taker taker(queue_);
    push(1);
    push(2);
  }
  EXPECT_TRUE(readable());
  EXPECT_EQ(try_take(), 1);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(readable());
}

// Whichever of two events the one without a token is taken for.
TEST_F(EventQueueTest, ThereAreAsManyTokensAsEventsForOthers) {
  make_non_blocking();
  {
    const EventQueue::Taker taker(queue_);
    push(1);
    push(2);
  }
  EXPECT_EQ(take(), 1);  // by another thread
  EXPECT_FALSE(readable());
  EXPECT_EQ(try_take(), 2);
  EXPECT_EQ(try_take(), -1);
  {
    const EventQueue::Taker taker(queue_);
    push(1);
    push(2);
  }
  purge(1);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(queue_.pending());
  push(3);
  EXPECT_TRUE(readable());
  EXPECT_EQ(try_take(), 3);
  EXPECT_FALSE(readable());
}

// It is that thread's, as soon as it comes.
TEST_F(EventQueueTest, AnEventWhoseTokenIsTakenIsNotTakenByOthers) {
  push(1);
  uint64_t token;
  ASSERT_EQ(read(fd_, &token, sizeof(token)), 8);
  EXPECT_EQ(try_take(), -1);
}

TEST_F(EventQueueTest, PurgeDoesNotBlockOnABlockingDescriptor) {
  push(1);
  uint64_t token;
  ASSERT_EQ(read(fd_, &token, sizeof(token)), 8);  // a reader that has not taken the event yet
  purge(1);
  EXPECT_FALSE(readable());
}

TEST_F(EventQueueTest, CountsBeforePurgeCanMiss) {
  push(9);
  int taken = 0;
  ASSERT_TRUE(queue_.take(fd_, [&](const EventSource&) { ++taken; }));
  EXPECT_EQ(taken, 1);
}

// A sleeper that is not told of an event never wakes.
TEST_F(EventQueueTest, LosesNothingForWantOfMemory) {
  make_non_blocking();
  constexpr int kEach = 10'000;
  out_of_memory = true;
  for (int i = 0; i < kEach; ++i) {
    push(1);
    push(2);
  }
  out_of_memory = false;
  int taken[3] = {};
  for (int i = 0; i < 2 * kEach; ++i) {
    const int which = take();
    ASSERT_TRUE(which == 1 || which == 2) << "event " << i;
    ++taken[which];
  }
  EXPECT_EQ(taken[1], kEach);
  EXPECT_EQ(taken[2], kEach);
  EXPECT_EQ(take(), -1);
}

TEST_F(EventQueueTest, OldestFirstAndSeveralOfOneInTurnWithTheOthers) {
  make_non_blocking();
  for (const size_t which : {3, 1, 3, 2}) push(which);
  EXPECT_EQ(take(), 3);
  push(1);
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), 2);
  EXPECT_EQ(take(), 3);
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), -1);
}

TEST_F(EventQueueTest, PurgedSourceMayReportAgain) {
  make_non_blocking();
  push(1);
  push(1);
  push(2);
  purge(1);
  purge(1);
  EXPECT_EQ(take(), 2);
  EXPECT_EQ(take(), -1);
  push(1);
  EXPECT_EQ(take(), 1);
}

}  // namespace
}  // namespace uroce::verbs

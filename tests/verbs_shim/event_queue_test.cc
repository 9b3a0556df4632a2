// Event queues: what an application can do to their descriptor, and purging.
#include "verbs_shim/event_queue.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>
#include <unistd.h>

namespace uroce::verbs {
namespace {

class EventQueueTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(queue_.open(fd_), 0); }
  void TearDown() override { close(fd_); }

  void make_non_blocking() { ASSERT_EQ(fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK), 0); }
  bool readable() {
    pollfd entry{fd_, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  // The next event; -1 and errno when there is none.
  int take() {
    int event = -1;
    return queue_.take(fd_, event, [](int) {}) ? event : -1;
  }
  void purge(int which) {
    queue_.purge([which](int event) { return event == which; });
  }

  int fd_ = -1;
  EventQueue<int> queue_;
};

TEST_F(EventQueueTest, IsReadableWhileEventsArePending) {
  EXPECT_FALSE(readable());
  queue_.push(1);
  queue_.push(2);
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
  queue_.push(7);
  EXPECT_EQ(take(), 7);
}

TEST_F(EventQueueTest, BlocksUntilAnEventCame) {
  std::thread pusher([this] { queue_.push(3); });
  EXPECT_EQ(take(), 3);
  pusher.join();
}

TEST_F(EventQueueTest, SurvivesADescriptorMovedByTheApplication) {
  const int other = open("/dev/null", O_RDONLY);
  ASSERT_GE(other, 0);
  ASSERT_EQ(dup2(fd_, other), other);
  close(fd_);
  fd_ = other;
  queue_.push(4);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), 4);
}

TEST_F(EventQueueTest, ReportsAClosedDescriptor) {
  queue_.push(5);
  int event;
  EXPECT_FALSE(queue_.take(-1, event, [](int) {}));
  EXPECT_EQ(errno, EBADF);
}

TEST_F(EventQueueTest, PurgedEventsLeaveTheDescriptorToo) {
  make_non_blocking();
  queue_.push(1);
  queue_.push(2);
  queue_.push(1);
  purge(1);
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(readable());
  EXPECT_EQ(take(), -1);
}

TEST_F(EventQueueTest, PurgeDoesNotBlockOnABlockingDescriptor) {
  queue_.push(1);
  uint64_t token;
  ASSERT_EQ(read(fd_, &token, sizeof(token)), 8);  // a reader that has not taken the event yet
  purge(1);
  EXPECT_FALSE(readable());
}

TEST_F(EventQueueTest, CountsBeforePurgeCanMiss) {
  queue_.push(9);
  int taken = 0;
  int event = 0;
  ASSERT_TRUE(queue_.take(fd_, event, [&](int) { ++taken; }));
  EXPECT_EQ(taken, 1);
}

}  // namespace
}  // namespace uroce::verbs

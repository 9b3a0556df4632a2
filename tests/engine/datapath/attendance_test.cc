// SPDX-License-Identifier: BSD-2-Clause
// Which set tells of packets, when none does, and when a program may have been woken by them.
#include "engine/datapath/attendance.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace uroce::engine::test {
namespace {

using std::chrono::milliseconds;

class AttendanceTest : public testing::Test {
 protected:
  // As a channel has it.
  struct Set {
    Set() {
      epoll_event event{};
      EXPECT_EQ(epoll_ctl(fd, EPOLL_CTL_ADD, member, &event), 0);
      poll_set = std::make_shared<PollSet>(fd, member);
    }
    ~Set() {
      close(fd);
      close(member);
    }
    void use() const {
      while (!poll_set->is_used()) poll_set->note_event();
    }
    const int fd = epoll_create1(EPOLL_CLOEXEC), member = eventfd(0, EFD_CLOEXEC);
    std::shared_ptr<PollSet> poll_set;
  };
  bool claim(const Set& set) { return attendance.claim(set.poll_set, now); }
  void look_in_vain(int times) {
    for (int i = 0; i < times; ++i) attendance.note(false, true, now);
  }

  Attendance attendance;
  Time now{std::chrono::seconds(1)};
  Set one, other;
};

TEST_F(AttendanceTest, ASetTellsOfPacketsOnceItIsUsed) {
  EXPECT_FALSE(claim(one));
  for (int events = 0; !one.poll_set->is_used(); ++events) {
    ASSERT_LT(events, 100);
    EXPECT_FALSE(claim(one));
    one.poll_set->note_event();
  }
  EXPECT_TRUE(claim(one));
  EXPECT_TRUE(attendance.lasts(now));
}

// It is told of nothing but events, for longer and longer.
TEST_F(AttendanceTest, WhoWaitsForOneWhileThereAreOthersIsNotWokenByPackets) {
  one.use();
  ASSERT_TRUE(claim(one));
  for (const auto pause : {std::chrono::seconds(1), std::chrono::seconds(2)}) {
    int times = 0;
    for (; attendance.lasts(now); ++times) {
      ASSERT_LT(times, 100);
      attendance.note_one_by_one(now);
    }
    EXPECT_GT(times, 1);
    EXPECT_FALSE(claim(one));
    attendance.note(true, true, now);
    now += pause - milliseconds(1);
    EXPECT_FALSE(claim(one));
    now += milliseconds(1);
    EXPECT_TRUE(claim(one));
  }
}

// As two threads do now and then that have a channel each.
TEST_F(AttendanceTest, WhoSeldomWaitsForOneWhileThereAreOthersIsWokenByPackets) {
  one.use();
  ASSERT_TRUE(claim(one));
  for (int times = 0; times < 100; ++times) {
    attendance.note_one_by_one(now);
    now += milliseconds(70);
    EXPECT_TRUE(claim(one)) << times;
  }
}

TEST_F(AttendanceTest, OneThatIsNotUsedReliesOnOneThatIsLookedAfter) {
  one.use();
  EXPECT_TRUE(claim(one));
  EXPECT_TRUE(claim(other));
  now += milliseconds(11);
  EXPECT_FALSE(claim(other));
  other.use();
  EXPECT_TRUE(claim(other));
  attendance.release(*other.poll_set);
  now += milliseconds(200);
  EXPECT_FALSE(attendance.lasts(now));
}

// Another thread takes the packets: the one that sleeps is not woken for them for long.
TEST_F(AttendanceTest, NoneTellsOfPacketsWhereTheProgramIsWokenInVain) {
  one.use();
  milliseconds pause{100};
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(claim(one));
    look_in_vain(64);
    EXPECT_TRUE(claim(one));
    look_in_vain(1);
    EXPECT_FALSE(claim(one));
    now += pause - milliseconds(1);
    EXPECT_FALSE(claim(one));
    now += milliseconds(1);
    pause = std::min(pause * 2, milliseconds(10'000));
  }
  EXPECT_TRUE(claim(one));
  look_in_vain(64);
  attendance.note(true, true, now);  // once is enough
  look_in_vain(64);
  EXPECT_TRUE(claim(one));
}

TEST_F(AttendanceTest, WhoAsksForAnEventWhereThereIsNoneBearsThat) {
  EXPECT_FALSE(one.poll_set->bears_no_event());
  one.poll_set->note_no_event();
  EXPECT_TRUE(one.poll_set->bears_no_event());
  other.use();
  other.poll_set->note_no_event();
  EXPECT_FALSE(other.poll_set->bears_no_event()) << "packets may have woken it";
}

}  // namespace
}  // namespace uroce::engine::test

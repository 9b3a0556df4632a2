// SPDX-License-Identifier: BSD-2-Clause
// Which set tells of packets, when none does, and when a program may have been woken by them.
#include "engine/datapath/attendance.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace uroce::engine::test {
namespace {

using std::chrono::milliseconds;

class AttendanceTest : public testing::Test {
 protected:
  // As a channel has it.
  struct Set {
    Set() {
      epoll_event event{};
      event.events = EPOLLIN;
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

// --- several sets of a program that asks before there is an event ---------------------------------------------------

class SeveralSets : public AttendanceTest {
 protected:
  SeveralSets() {
    for (const Set* const set : {&one, &other, &third}) {
      set->poll_set->note_no_event();
      set->use();
    }
    claim(one);
    claim(other);
    put();
  }
  void request(const Set& set) { attendance.note_request(set.poll_set, now); }
  void leave(const Set& set, bool asked_in_vain = false) {
    claim(set);
    attendance.note_sleep(set.poll_set, asked_in_vain, now);
    if (!attendance.has_all(attendance.setups())) put();
  }
  void put() {
    const pollfd packets{packets_.fd, POLLIN, 0};
    EXPECT_TRUE(attendance.put({&packets, 1}, attendance.setups()));
  }
  // Those that packets make readable.
  std::string told() {
    packets_.raise();
    std::string names;
    for (const auto& [set, name] :
         {std::pair(&one, "one "), std::pair(&other, "other "), std::pair(&third, "third ")}) {
      pollfd entry{set->fd, POLLIN, 0};
      if (poll(&entry, 1, 0) == 1) names += name;
    }
    packets_.lower();
    return names;
  }
  Set third;

 private:
  struct Packets {
    Packets() = default;
    Packets(const Packets&) = delete;
    Packets& operator=(const Packets&) = delete;
    ~Packets() { close(fd); }
    void raise() const { eventfd_write(fd, 1); }
    void lower() const {
      eventfd_t count;
      eventfd_read(fd, &count);
    }
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  } packets_;
};

TEST_F(SeveralSets, TheOneWithTheOldestRequestTellsOfPackets) {
  request(other);
  EXPECT_EQ(told(), "other ") << "at once: nothing is due in the one before";
  request(third);
  request(one);
  EXPECT_EQ(told(), "other ");
  attendance.note_answer(*other.poll_set);
  leave(other);
  EXPECT_EQ(told(), "third ");
  request(other);
  attendance.note_answer(*third.poll_set);
  leave(third);
  EXPECT_EQ(told(), "one ");
  attendance.note_answer(*other.poll_set);
  attendance.note_answer(*one.poll_set);
  leave(one);
  EXPECT_EQ(told(), "one ") << "until another one takes its place";
}

TEST_F(SeveralSets, ARequestThatIsNotAnsweredDoesNotKeepTheOthersWaiting) {
  request(one);
  now += milliseconds(60);
  request(other);
  now += milliseconds(50);
  leave(third);
  EXPECT_EQ(told(), "other ");
  request(one);
  attendance.note_answer(*other.poll_set);
  leave(other);
  EXPECT_EQ(told(), "one ");
}

TEST_F(SeveralSets, TheOneThatWasAskedInVainTellsOfPackets) {
  request(other);
  leave(third, true);
  EXPECT_EQ(told(), "third ");
  leave(one, true);
  EXPECT_EQ(told(), "one ");
}

TEST_F(SeveralSets, WhatAnotherThreadWaitsForIsLeftToIt) {
  std::thread([&] { leave(one, true); }).join();
  leave(other, true);
  EXPECT_EQ(told(), "one ");
}

TEST_F(SeveralSets, NoneTellsOfPacketsWhenNoAnswerIsDue) {
  request(one);
  attendance.tidy(now);
  EXPECT_EQ(told(), "one ");
  now += milliseconds(2);
  attendance.tidy(now);
  EXPECT_EQ(told(), "one ");
  attendance.note_answer(*one.poll_set);
  leave(one);
  attendance.tidy(now);
  EXPECT_EQ(told(), "one ") << "the program is still there";
  now += milliseconds(2);
  attendance.tidy(now);
  EXPECT_EQ(told(), "");
  EXPECT_FALSE(attendance.lasts(now));
}

// Our thread sleeps on the packet I/O itself, and tidies nothing meanwhile.
TEST_F(SeveralSets, NoneTellsOfPacketsWhileOurThreadSleeps) {
  request(one);
  EXPECT_TRUE(attendance.is_to_be_tidied());
  attendance.stop();
  EXPECT_EQ(told(), "");
  EXPECT_FALSE(attendance.is_to_be_tidied());
  EXPECT_FALSE(attendance.lasts(now));
  request(other);
  leave(third);
  EXPECT_EQ(told(), "one ") << "whose request is older, though no set was there to tell";
  EXPECT_TRUE(attendance.is_to_be_tidied());
}

TEST_F(SeveralSets, OneThatEndsIsNoneOfThem) {
  request(other);
  request(third);
  attendance.release(*other.poll_set);
  EXPECT_EQ(told(), "");
  leave(one);
  EXPECT_EQ(told(), "third ");
  EXPECT_EQ(other.poll_set.use_count(), 1);
  EXPECT_EQ(third.poll_set.use_count(), 3) << "it tells of packets, and an answer is due";
}

// The packet I/O has other descriptors by now: those that it had may be somebody else's.
TEST_F(SeveralSets, WhatIsNotThereAnyMoreIsNotPassedOn) {
  attendance.note_setup();
  request(other);
  EXPECT_EQ(told(), "");
  EXPECT_FALSE(attendance.has_all(attendance.setups()));
  EXPECT_FALSE(attendance.lasts(now)) << "nobody relies on it";
}

TEST_F(AttendanceTest, SeveralOfWhoComesOnlyForEventsAreLeftAsTheyAre) {
  for (const Set* const set : {&one, &other}) set->use();
  claim(one);
  claim(other);
  attendance.note_request(other.poll_set, now);
  EXPECT_EQ(other.poll_set->requested_at(), Time{});
  attendance.note_sleep(other.poll_set, true, now);
  now += milliseconds(5);
  attendance.tidy(now);
  attendance.stop();
  EXPECT_TRUE(attendance.lasts(now));
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

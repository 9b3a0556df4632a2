// SPDX-License-Identifier: BSD-2-Clause
// What base/fork.h promises, in the child and in the parent. The child answers by its exit status.
#include "base/fork.h"

#include <atomic>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace uroce {
namespace {

// True: `check()` held in the child. `fork_with` makes the child.
bool holds_in_child(const std::function<bool()>& check, const std::function<pid_t()>& fork_with = fork) {
  const pid_t child = fork_with();
  if (child == 0) {
    alarm(20);
    // Not _exit(): ThreadSanitizer would report the parent's threads, which nobody joins here.
    syscall(SYS_exit_group, check() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) != -1;
}

TEST(Fork, EveryProcessIsAGenerationOfItsOwn) {
  const uint32_t mine = process_generation();
  EXPECT_NE(mine, 0u);
  EXPECT_EQ(process_generation(), mine);
  EXPECT_TRUE(holds_in_child([mine] {
    const uint32_t child = process_generation();
    if (child == mine || child != process_generation()) return false;
    return holds_in_child([=] { return process_generation() != child && process_generation() != mine; });
  }));
  EXPECT_EQ(process_generation(), mine);
}

TEST(Fork, NoWayToForkGoesUnnoticed) {
  const uint32_t mine = process_generation();
  const auto is_new = [mine] { return process_generation() != mine; };
  EXPECT_TRUE(holds_in_child(is_new, _Fork));
  EXPECT_TRUE(holds_in_child(
      is_new, [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); }));
}

TEST(Fork, LocksOfTheParentsThreadsAreFree) {
  ForkProofLock lock;
  std::atomic<int> step{0};
  std::thread holder([&] {
    lock.lock();
    step = 1;
    while (step == 1) std::this_thread::yield();
    lock.unlock();
  });
  while (step == 0) std::this_thread::yield();
  EXPECT_FALSE(lock.try_lock());
  EXPECT_TRUE(holds_in_child([&] {
    lock.lock();
    const bool held = !lock.try_lock();
    lock.unlock();
    return held && lock.try_lock();
  }));
  EXPECT_FALSE(lock.try_lock());
  step = 2;
  holder.join();
  EXPECT_TRUE(lock.try_lock());
}

TEST(Fork, ExcludesEachOther) {
  ForkProofLock lock;
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < 20000; ++i) {
      lock.lock();
      ++count;
      lock.unlock();
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 40000);
}

struct Counted {
  int value = 7;
};

TEST(Fork, WhatAProcessHasOneOfIsMadeAnew) {
  Counted& mine = per_process<Counted>();
  EXPECT_EQ(&per_process<Counted>(), &mine);
  mine.value = 8;
  EXPECT_TRUE(holds_in_child([&] {
    Counted& child = per_process<Counted>();
    return &child != &mine && child.value == 7 && &per_process<Counted>() == &child && mine.value == 8;
  }));
  EXPECT_EQ(&per_process<Counted>(), &mine);
}

TEST(Fork, ChildrenDoNotKeepDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ForkGuard().close_in_children(ends[0]);
  EXPECT_TRUE(holds_in_child([&] { return !is_open(ends[0]) && is_open(ends[1]); }));
  EXPECT_TRUE(is_open(ends[0]));
  // Closed here, the number is nobody's again.
  ForkGuard().close(ends[0]);
  EXPECT_FALSE(is_open(ends[0]));
  ASSERT_EQ(dup2(ends[1], ends[0]), ends[0]);
  EXPECT_TRUE(holds_in_child([&] { return is_open(ends[0]); }));
  close(ends[0]);
  close(ends[1]);
}

TEST(Fork, WaitsForDescriptorsThatAreBeingMade) {
  int ends[2] = {-1, -1};
  std::atomic<bool> half{false};
  std::thread maker([&] {
    ForkGuard guard;
    ASSERT_EQ(pipe(ends), 0);
    half = true;
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    guard.close_in_children(ends[0]);
    guard.close_in_children(ends[1]);
  });
  while (!half) std::this_thread::yield();
  EXPECT_TRUE(holds_in_child([&] { return !is_open(ends[0]) && !is_open(ends[1]); }));
  maker.join();
  ForkGuard guard;
  guard.close(ends[0]);
  guard.close(ends[1]);
}

}  // namespace
}  // namespace uroce

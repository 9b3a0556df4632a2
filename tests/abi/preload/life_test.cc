// SPDX-License-Identifier: BSD-2-Clause
// The view through a process's life: threads, fork, change of user, exit, sudden death.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "view_paths.h"

namespace {

std::string read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  if (file < 0) return std::strerror(errno);
  char text[256];
  const ssize_t length = read(file, text, sizeof(text));
  close(file);
  return {text, length < 0 ? 0 : static_cast<size_t>(length)};
}

bool sees_device() {
  return read_file(kDevice + "/node_type") == "1: CA\n";
}

// Names of the directories in which `process` keeps its files.
std::vector<std::string> trees_of(pid_t process) {
  std::vector<std::string> trees;
  const std::string mark = "-" + std::to_string(process) + "-";
  for (const char* place : {"/dev/shm", "/tmp"}) {
    DIR* directory = opendir(place);
    while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory)) {
      const std::string name = entry->d_name;
      if (name.rfind("uroce-files-", 0) == 0 && name.find(mark) != std::string::npos) trees.push_back(name);
    }
    if (directory != nullptr) closedir(directory);
  }
  return trees;
}

// Runs `body` in a child that dies if it takes long. Its exit code, or minus its signal.
template <class Body>
int in_child(Body body, pid_t* who = nullptr) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    std::_Exit(99);  // bodies end themselves
  }
  if (who != nullptr) *who = child;
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Life, OneTreeForAProcess) {
  ASSERT_TRUE(sees_device());
  ASSERT_TRUE(sees_device());
  EXPECT_EQ(trees_of(getpid()).size(), 1u);
}

TEST(Life, ExitRemovesIt) {
  pid_t child = 0;
  EXPECT_EQ(in_child([] { std::exit(sees_device() && trees_of(getpid()).size() == 1 ? 0 : 1); }, &child), 0);
  EXPECT_TRUE(trees_of(child).empty());
}

TEST(Life, AForkedChildHasItsOwnAndLeavesTheParentsAlone) {
  ASSERT_TRUE(sees_device());
  const pid_t parent = getpid();
  EXPECT_EQ(in_child([=] { std::exit(sees_device() && trees_of(parent).size() == 1 ? 0 : 1); }), 0);
  EXPECT_EQ(in_child([] { std::exit(0); }), 0) << "one that never looked";
  EXPECT_EQ(trees_of(parent).size(), 1u);
  EXPECT_TRUE(sees_device());
}

TEST(Life, AKilledProcessIsSweptUpByTheNext) {
  pid_t child = 0;
  EXPECT_EQ(in_child(
                [] {
                  if (sees_device()) std::raise(SIGKILL);
                  std::exit(1);
                },
                &child),
            -SIGKILL);
  ASSERT_EQ(trees_of(child).size(), 1u);
  EXPECT_EQ(in_child([] { std::exit(sees_device() ? 0 : 1); }), 0);
  EXPECT_TRUE(trees_of(child).empty());
}

TEST(Life, ExecLeavesNothingForLong) {
  pid_t child = 0;
  // The shell looks, then becomes another program that looks as well: the same process.
  EXPECT_EQ(in_child(
                [] {
                  execl("/bin/sh", "sh", "-c",
                        "test -d /sys/class/infiniband && exec cat /sys/class/infiniband/*/node_type", nullptr);
                },
                &child),
            0);
  EXPECT_TRUE(trees_of(child).empty());
}

TEST(Life, AnotherUserMakesItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_TRUE(sees_device());
  constexpr uid_t kNobody = 65534;
  const int result = in_child([] {
    if (!sees_device() || setgid(kNobody) != 0 || setuid(kNobody) != 0) std::exit(77);
    std::exit(sees_device() ? 0 : 1);
  });
  if (result == 77) GTEST_SKIP() << "this user namespace has only one user";
  EXPECT_EQ(result, 0);
}

TEST(Life, ADaemonMayCloseEverythingItDoesNotKnow) {
  EXPECT_EQ(in_child([] {
              if (!sees_device()) std::exit(1);
              for (int descriptor = 3; descriptor < 256; ++descriptor) close(descriptor);
              std::exit(sees_device() && open("/dev/null", O_RDONLY) == 3 ? 0 : 2);
            }),
            0);
}

TEST(Life, WhoeverTidiesUpDoesNoHarm) {
  EXPECT_EQ(in_child([] {
              if (!sees_device() || trees_of(getpid()).size() != 1) std::exit(1);
              for (const std::string& tree : trees_of(getpid())) {
                if (std::system(("export LD_PRELOAD=; rm -r /dev/shm/" + tree).c_str()) != 0) std::exit(2);
              }
              std::exit(sees_device() ? 0 : 3);
            }),
            0);
}

// Readers see whole texts while the network changes, threads are cancelled, and the process forks.
TEST(Life, ThreadsForksAndChanges) {
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        const std::string gid = read_file(kPort + "/gids/2");
        if (gid.size() != 40 || gid.back() != '\n') ++wrong;
        if (!sees_device()) ++wrong;
      }
    });
  }
  std::thread canceller([&] {
    while (!done) {
      pthread_t victim{};
      std::atomic<bool> started{false};
      const auto look = [](void* to) -> void* {
        for (;; *static_cast<std::atomic<bool>*>(to) = true) sees_device();
      };
      if (pthread_create(&victim, nullptr, look, &started) != 0) continue;
      while (!started) std::this_thread::yield();
      pthread_cancel(victim);
      pthread_join(victim, nullptr);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::string change =
        std::string("export LD_PRELOAD=; ip address ") + (i % 2 == 0 ? "add" : "delete") + " 203.0.113.7/24 dev rdma0";
    EXPECT_EQ(std::system(change.c_str()), 0);
    EXPECT_EQ(in_child([] { std::exit(sees_device() ? 0 : 1); }), 0);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  canceller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace

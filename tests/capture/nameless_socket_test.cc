// SPDX-License-Identifier: BSD-2-Clause
// The socket without a name: who finds it, who may connect, and that nothing of it stays.
#include "capture/nameless_socket.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/fork.h"

namespace uroce::io::test {
namespace {

constexpr uid_t kNobody = 65534;

// A child that does something and then lives until it is told to end, or killed.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) {
    int ready[2], hold[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(hold), 0);
    pid = fork();
    if (pid == 0) {
      close(hold[1]);
      char byte = body() ? 1 : 0;
      [[maybe_unused]] ssize_t n = write(ready[1], &byte, 1);
      n = read(hold[0], &byte, 1);
      _exit(0);
    }
    close(ready[1]);
    close(hold[0]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1) << "the child failed";
    close(ready[0]);
    hold_ = hold[1];
  }
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end(int signal) {
    if (hold_ < 0) return;
    kill(pid, signal);
    waitpid(pid, nullptr, 0);
    close(std::exchange(hold_, -1));
  }

  pid_t pid = -1;

 private:
  int hold_ = -1;
};

bool open_one() {
  NamelessSocket made;
  return open_nameless_socket(made) == 0;
}

// As somebody else, in a process of its own; what connecting to `pid` gives there, 0 for a connection.
int connect_as(uid_t user, int pid) {
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) _exit(255);
    _exit(-std::min(connect_to_nameless_socket(pid), 0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

// Names in all places where one may have been.
std::vector<std::string> names_with(const std::string& text) {
  std::vector<std::string> found;
  for (const char* const place : {"/dev/shm", "/tmp", "/run"}) {
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      if (entry.path().filename().string().find(text) != std::string::npos) found.push_back(entry.path());
    }
  }
  return found;
}
std::vector<std::string> names_of(int pid) {
  return names_with("uroce-capture-" + std::to_string(pid) + "-");
}

TEST(NamelessSocket, LeadsToTheProcess) {
  const Child child([] {
    NamelessSocket made;
    if (open_nameless_socket(made) != 0) return false;
    return fcntl(made.socket, F_GETFD) == FD_CLOEXEC && fcntl(made.handle, F_GETFD) == FD_CLOEXEC;
  });
  const int fd = connect_to_nameless_socket(child.pid);
  ASSERT_GE(fd, 0) << std::strerror(-fd);
  ucred peer{};
  socklen_t size = sizeof(peer);
  ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
  EXPECT_EQ(peer.pid, child.pid);
  close(fd);
  EXPECT_TRUE(has_nameless_socket(child.pid));
  EXPECT_FALSE(has_nameless_socket(getpid()));
}

TEST(NamelessSocket, NothingStaysOfAKilledProcess) {
  Child child(open_one);
  EXPECT_EQ(names_of(child.pid), std::vector<std::string>{});
  child.end(SIGKILL);
  EXPECT_EQ(names_of(child.pid), std::vector<std::string>{});
  EXPECT_EQ(connect_to_nameless_socket(child.pid), -ENOENT);
  EXPECT_FALSE(has_nameless_socket(child.pid));
}

TEST(NamelessSocket, ProcessesWithoutOne) {
  EXPECT_EQ(connect_to_nameless_socket(getpid()), -ENOENT);
  EXPECT_FALSE(may_not_look_into(getpid()));
  EXPECT_EQ(connect_to_nameless_socket(0x7fffffff), -ENOENT);
  EXPECT_FALSE(may_not_look_into(0x7fffffff));
}

// What a child that is on its way to exec() has is its parent's.
TEST(NamelessSocket, ADescriptorOfSomebodyElseIsNotTakenForOnesOwn) {
  NamelessSocket mine;
  ASSERT_EQ(open_nameless_socket(mine), 0);
  const Child forked([] { return true; });
  EXPECT_EQ(connect_to_nameless_socket(forked.pid), -ENOENT) << "children have no copy";
  const int copy = dup(mine.handle);
  const Child borrower([] { return true; });
  EXPECT_EQ(connect_to_nameless_socket(borrower.pid), -EPERM);
  close(copy);
  ForkGuard().close(mine.handle);
  ForkGuard().close(mine.socket);
}

TEST(NamelessSocket, OnlyItsUserAndRootMayComeIn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Child root(open_one);
  EXPECT_EQ(connect_as(kNobody, root.pid), EACCES);
  EXPECT_EQ(connect_as(0, root.pid), 0);
  const Child nobody([] {
    umask(0777);
    // The kernel hides what a process had as root.
    return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
           prctl(PR_SET_DUMPABLE, 1) == 0 && open_one();
  });
  EXPECT_EQ(connect_as(kNobody, nobody.pid), 0) << "whatever the umask";
  EXPECT_EQ(connect_as(kNobody - 1, nobody.pid), EACCES);
  EXPECT_EQ(connect_as(0, nobody.pid), 0);
}

// As one with capabilities does.
TEST(NamelessSocket, AProcessThatMayNotBeLookedIntoIsRecognised) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Child closed([] {
    return open_one() && setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
           prctl(PR_SET_DUMPABLE, 0) == 0;
  });
  EXPECT_EQ(connect_as(kNobody, closed.pid), EACCES);
  EXPECT_EQ(connect_as(0, closed.pid), 0);
}

// Somebody was killed between making the name and removing it.
TEST(NamelessSocket, TheNextOneRemovesWhatAKilledOneLeft) {
  Child dead([] { return true; });
  dead.end(SIGKILL);
  const Child alive([] { return true; });
  struct stat pids {};
  ASSERT_EQ(stat("/proc/self/ns/pid", &pids), 0);
  const auto leave = [](pid_t pid, ino_t pid_namespace) {
    const std::string path =
        "/dev/shm/uroce-capture-" + std::to_string(pid) + "-" + std::to_string(pid_namespace) + "-1";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    close(fd);
    return path;
  };
  const std::string stale = leave(dead.pid, pids.st_ino), fresh = leave(alive.pid, pids.st_ino);
  const std::string elsewhere = leave(dead.pid, pids.st_ino + 1);
  const Child next(open_one);
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(fresh)) << "it may be in use";
  EXPECT_TRUE(std::filesystem::exists(elsewhere)) << "of another PID namespace, in which the number may live";
  unlink(fresh.c_str());
  unlink(elsewhere.c_str());
}

}  // namespace
}  // namespace uroce::io::test

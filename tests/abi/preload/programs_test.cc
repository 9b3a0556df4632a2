// SPDX-License-Identifier: BSD-2-Clause
// Programs that have nothing to do with RDMA work as ever, and see the files.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <gmock/gmock.h>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "view_paths.h"

namespace {

using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string output;
};

// In this process's environment: preloaded and in its network namespace. stdout and stderr.
Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

bool installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

#define SKIP_WITHOUT(program) \
  if (!installed(program)) GTEST_SKIP() << program << " is not installed"

TEST(Programs, Coreutils) {
  const Outcome list = run("ls -l /sys/class/infiniband /dev/infiniband");
  EXPECT_EQ(list.code, 0) << list.output;
  EXPECT_THAT(list.output, HasSubstr("uroce_rdma0"));
  EXPECT_THAT(list.output, HasSubstr("crw-rw-rw-"));
  EXPECT_EQ(run("cat " + kPort + "/state").output, "4: ACTIVE\n");
  EXPECT_EQ(run("realpath " + kDevice + "/../uroce_rdma0/ports").output, kDevice + "/ports\n");
  EXPECT_EQ(run("find /sys/class/infiniband -name state").output, kPort + "/state\n");
  EXPECT_THAT(run("grep -r ACTIVE " + kDevice).output, HasSubstr(kPort + "/state:4: ACTIVE"));
}

TEST(Programs, Bash) {
  SKIP_WITHOUT("bash");
  EXPECT_EQ(run("bash -c 'cd /sys/class/infiniband/*/ports/1 && pwd -P && cat state'").output, kPort + "\n4: ACTIVE\n");
  EXPECT_EQ(run("bash -c '[[ -c " + node() + " && -r " + node() + " && -w " + node() + " ]] && echo yes'").output,
            "yes\n");
  EXPECT_EQ(run("bash -c 'echo $(</sys/class/infiniband/uroce_rdma0/node_type); (exit 3)'").code, 3);
}

TEST(Programs, Python) {
  SKIP_WITHOUT("python3");
  const Outcome outcome = run(R"(python3 -c '
import glob, os, subprocess
print(open("/sys/class/infiniband/uroce_rdma0/node_type").read().strip())
print(glob.glob("/sys/class/infiniband/*"), os.path.realpath("/sys/class/infiniband/uroce_rdma0/ports/1/.."))
print(subprocess.check_output(["cat", "state"], cwd="/sys/class/infiniband/uroce_rdma0/ports/1").decode().strip())
')");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output,
            "1: CA\n['/sys/class/infiniband/uroce_rdma0'] /sys/class/infiniband/uroce_rdma0/ports\n4: ACTIVE\n");
}

// What a child prints that `become` makes another program.
std::string output_of(const std::function<void()>& become) {
  std::array<int, 2> ends;
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    become();
    _exit(1);
  }
  close(ends[1]);
  std::string output;
  for (char letter; read(ends[0], &letter, 1) == 1;) output += letter;
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << output;
  return output;
}

// The hooks pass everything on (hooks/end.cc).
TEST(Programs, BecomeOthers) {
  char* const arguments[] = {const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>("echo $# $1 $COLOUR"),
                             const_cast<char*>("sh"), const_cast<char*>("b"),  nullptr};
  char* const environment[] = {const_cast<char*>("COLOUR=red"), const_cast<char*>("PATH=/bin"), nullptr};
  const char* const script = arguments[2];
  EXPECT_EQ(output_of([&] { execve("/bin/sh", arguments, environment); }), "1 b red\n");
  EXPECT_EQ(output_of([&] { execv("/bin/sh", arguments); }), "1 b\n");
  EXPECT_EQ(output_of([&] { execvp("sh", arguments); }), "1 b\n");
  EXPECT_EQ(output_of([&] { execvpe("sh", arguments, environment); }), "1 b red\n");
  EXPECT_EQ(output_of([&] { fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), arguments, environment); }), "1 b red\n");
  EXPECT_EQ(output_of([&] { execveat(AT_FDCWD, "/bin/sh", arguments, environment, 0); }), "1 b red\n");
  EXPECT_EQ(output_of([&] { execl("/bin/sh", "sh", "-c", script, "sh", "b", nullptr); }), "1 b\n");
  EXPECT_EQ(output_of([&] { execlp("sh", "sh", "-c", script, "sh", "b", "c", nullptr); }), "2 b\n");
  EXPECT_EQ(output_of([&] { execle("/bin/sh", "sh", "-c", script, "sh", "b", nullptr, environment); }), "1 b red\n");
}

TEST(Programs, EndWithTheirStatus) {
  for (void (*const end)(int) : std::initializer_list<void (*)(int)>{_exit, _Exit, quick_exit}) {
    const pid_t child = fork();
    if (child == 0) end(7);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  }
}

TEST(Programs, AFailedExecSaysWhy) {
  char* const arguments[] = {const_cast<char*>("x"), nullptr};
  errno = 0;
  EXPECT_EQ(execv("/nowhere/x", arguments), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Programs, Gdb) {
  SKIP_WITHOUT("gdb");
  const Outcome outcome = run("gdb -q -batch -nx -ex run --args cat " + kPort + "/state");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("4: ACTIVE"));
}

// Before ours, and before those of the libraries that ours needs.
TEST(Programs, BeforeAnyConstructor) {
  const std::string preload = std::getenv("LD_PRELOAD");
  EXPECT_EQ(run("LD_PRELOAD=" + preload + ":" EARLY_BIRD " /bin/true").output, "early: uroce_rdma0\n");
  EXPECT_EQ(run(EARLY_PROGRAM).output, "early: uroce_rdma0\n");
  EXPECT_EQ(run("LD_PRELOAD=" EARLY_BIRD ":" UROCE_FILES_LIBRARY " /bin/true").output, "early: uroce_rdma0\n");
}

// Then the files are not there, and one line says why.
TEST(Programs, WhereNothingCanBeWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string library = UROCE_FILES_LIBRARY;
  if (library.rfind("/tmp/", 0) == 0 || library.rfind("/dev/shm/", 0) == 0) GTEST_SKIP() << "would hide " << library;
  const Outcome outcome =
      run("unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o ro none /tmp && exec ls "
          "/sys/class/infiniband'");
  if (outcome.output.find("unshare failed") != std::string::npos) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("uroce: no files under /sys/class/infiniband: neither /dev/shm nor /tmp"));
  EXPECT_THAT(outcome.output, HasSubstr("No such file or directory"));
}

}  // namespace

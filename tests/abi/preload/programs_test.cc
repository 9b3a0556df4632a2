// SPDX-License-Identifier: BSD-2-Clause
// Programs that have nothing to do with RDMA work as ever, and see the files.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
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

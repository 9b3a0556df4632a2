// SPDX-License-Identifier: BSD-2-Clause
// What `uroce run` says about programs it is to start.
#include "cli/target.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace uroce::cli {
namespace {

namespace fs = std::filesystem;

class TargetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "uroce-target-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  // A file in the directory; returns its path.
  std::string make_file(const std::string& name, const std::string& content, mode_t mode) {
    const fs::path path = directory_ / name;
    std::ofstream(path) << content;
    chmod(path.c_str(), mode);
    return path.string();
  }

  // This test's own executable with a few bytes changed, so that it is an ELF file of another kind.
  std::string patched_self(const std::string& name, const std::vector<std::pair<size_t, std::string>>& patches) {
    const fs::path path = directory_ / name;
    fs::copy_file("/proc/self/exe", path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (const auto& [offset, bytes] : patches) {
      file.seekp(static_cast<std::streamoff>(offset));
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    return path.string();
  }

  fs::path directory_;
};

TEST_F(TargetTest, FindsProgramsInThePathInOrder) {
  fs::create_directory(directory_ / "second");
  make_file("second/tool", "#!/bin/sh\n", 0755);
  const std::string search =
      (directory_ / "absent").string() + ":" + directory_.string() + ":" + directory_.string() + "/second";
  EXPECT_EQ(find_target("tool", search).path, (directory_ / "second/tool").string());
  const std::string first = make_file("tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(find_target("tool", search).path, first);
}

TEST_F(TargetTest, PathWithSlashIsNotSearched) {
  const std::string tool = make_file("tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(find_target(tool, "").path, tool);
  EXPECT_EQ(find_target("./no-such-tool", directory_.string()).kind, TargetKind::kNotFound);
}

TEST_F(TargetTest, MissingAndNotExecutable) {
  EXPECT_EQ(find_target("no-such-tool", directory_.string()).kind, TargetKind::kNotFound);
  EXPECT_EQ(find_target("", directory_.string()).kind, TargetKind::kNotFound);
  const std::string plain = make_file("plain", "text", 0644);
  const Target target = find_target("plain", directory_.string());
  EXPECT_EQ(target.kind, TargetKind::kNotExecutable);
  EXPECT_EQ(target.path, plain);
  EXPECT_EQ(find_target(directory_.string(), "").kind, TargetKind::kNotExecutable);
}

TEST_F(TargetTest, DynamicExecutableAndScriptAreUsable) {
  EXPECT_EQ(find_target("/proc/self/exe", "").kind, TargetKind::kUsable);
  EXPECT_EQ(find_target(make_file("script", "#!/bin/sh\n", 0755), "").kind, TargetKind::kUsable);
}

TEST_F(TargetTest, WithoutInterpreterIsStatic) {
  constexpr size_t kProgramHeaderCount = 56;  // e_phnum of Elf64_Ehdr
  const std::string none(2, '\0');
  EXPECT_EQ(find_target(patched_self("static", {{kProgramHeaderCount, none}}), "").kind, TargetKind::kStatic);
}

TEST_F(TargetTest, OtherWordSizeOrMachineIsForeign) {
  constexpr size_t kClass = 4, kMachine = 18;  // e_ident[EI_CLASS], e_machine
  EXPECT_EQ(find_target(patched_self("elf32", {{kClass, "\x01"}}), "").kind, TargetKind::kForeign);
  EXPECT_EQ(find_target(patched_self("sparc", {{kMachine, "\x02"}}), "").kind, TargetKind::kForeign);
}

TEST_F(TargetTest, ForeignSetUserIdIsPrivileged) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const std::string tool = patched_self("tool", {});
  EXPECT_EQ(find_target(tool, "").kind, TargetKind::kUsable);
  ASSERT_EQ(chown(tool.c_str(), 65534, 65534), 0);
  chmod(tool.c_str(), 04755);
  EXPECT_EQ(find_target(tool, "").kind, TargetKind::kPrivileged);
  chmod(tool.c_str(), 02755);
  EXPECT_EQ(find_target(tool, "").kind, TargetKind::kPrivileged);
  const std::string script = make_file("script", "#!/bin/sh\n", 0755);
  ASSERT_EQ(chown(script.c_str(), 65534, 65534), 0);
  chmod(script.c_str(), 04755);
  EXPECT_EQ(find_target(script, "").kind, TargetKind::kUsable) << "the kernel ignores the mode of scripts";
}

// Where the kernel gives nobody more rights, the bits of the file mean nothing.
TEST_F(TargetTest, WithoutNewPrivilegesNothingIsPrivileged) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const std::string tool = patched_self("tool", {});
  ASSERT_EQ(chown(tool.c_str(), 65534, 65534), 0);
  chmod(tool.c_str(), 04755);
  ASSERT_EQ(find_target(tool, "").kind, TargetKind::kPrivileged);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    _exit(find_target(tool, "").kind == TargetKind::kUsable ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(TargetTest, WhatStartsOthersWithoutTheEnvironment) {
  for (const char* name : {"sudo", "doas", "pkexec"}) {
    EXPECT_EQ(find_target(patched_self(name, {}), "").kind, TargetKind::kChangesUser) << name << ", also for root";
  }
  EXPECT_EQ(find_target(patched_self("su", {}), "").kind, TargetKind::kUsable) << "keeps it, if not set-user-ID";
  EXPECT_EQ(find_target(patched_self("sudoku", {}), "").kind, TargetKind::kUsable);
}

}  // namespace
}  // namespace uroce::cli

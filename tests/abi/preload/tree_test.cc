// SPDX-License-Identifier: BSD-2-Clause
// The view as files: made, brought up to date, removed, and what dead processes left swept away.
#include "abi/preload/sysfs_view/tree.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace uroce::files {
namespace {

namespace fs = std::filesystem;

Node file(const std::string& text) {
  return {Node::Kind::kFile, text};
}
Node link(const std::string& target) {
  return {Node::Kind::kLink, target};
}

std::string text_of(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return stream.is_open() ? text.str() : "no file";
}

class TreeTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(tree_, nullptr); }
  void TearDown() override { tree_->remove(); }
  std::string at(const std::string& path) { return tree_->path() + "/" + path; }

  std::unique_ptr<Tree> tree_ = Tree::create();
};

TEST_F(TreeTest, IsPrivate) {
  struct stat status {};
  ASSERT_EQ(lstat(tree_->path().c_str(), &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_EQ(status.st_uid, geteuid());
}

TEST_F(TreeTest, WhateverTheUmask) {
  const mode_t mask = umask(0777);
  const bool made = tree_->update({{"a", {}}, {"a/file", file("x\n")}, {"a/b", {}}, {"a/b/file", file("y\n")}});
  umask(mask);
  ASSERT_TRUE(made);
  struct stat status {};
  ASSERT_EQ(stat(at("a/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0755u);
  ASSERT_EQ(stat(at("a/file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0444u);
}

TEST_F(TreeTest, ShowsWhatIsWanted) {
  ASSERT_TRUE(tree_->update({{"a", {}}, {"a/file", file("one\n")}, {"a/link", link("file")}, {"b", {}}}));
  EXPECT_EQ(text_of(at("a/file")), "one\n");
  EXPECT_EQ(text_of(at("a/link")), "one\n");
  ASSERT_TRUE(tree_->update({{"a", {}}, {"a/file", file("two\n")}, {"a/new", {}}, {"a/new/file", file("x")}}));
  EXPECT_EQ(text_of(at("a/file")), "two\n");
  EXPECT_EQ(text_of(at("a/new/file")), "x");
  EXPECT_FALSE(fs::exists(fs::symlink_status(at("a/link"))));
  EXPECT_FALSE(fs::exists(at("b")));
}

TEST_F(TreeTest, ANodeMayChangeItsKind) {
  ASSERT_TRUE(tree_->update({{"x", {}}, {"x/in", file("in")}, {"y", file("file")}, {"z", link("y")}}));
  ASSERT_TRUE(tree_->update({{"x", link("y")}, {"y", {}}, {"y/in", file("inner")}, {"z", file("z")}}));
  EXPECT_EQ(text_of(at("x/in")), "inner");
  EXPECT_EQ(text_of(at("z")), "z");
  EXPECT_FALSE(fs::is_symlink(at("z")));
}

TEST_F(TreeTest, OpenDirectoriesStayGood) {
  ASSERT_TRUE(tree_->update({{"a", {}}, {"a/file", file("one")}}));
  const int directory = open(at("a").c_str(), O_RDONLY | O_DIRECTORY);
  const int before = openat(directory, "file", O_RDONLY);
  ASSERT_TRUE(tree_->update({{"a", {}}, {"a/file", file("two")}}));
  const int after = openat(directory, "file", O_RDONLY);
  char text[4] = {};
  EXPECT_EQ(read(before, text, 3), 3);
  EXPECT_STREQ(text, "one") << "a reader goes on with what it has opened";
  EXPECT_EQ(read(after, text, 3), 3);
  EXPECT_STREQ(text, "two");
  for (const int descriptor : {directory, before, after}) close(descriptor);
}

TEST_F(TreeTest, ReadersSeeTheOldTextOrTheNew) {
  const Contents one = {{"file", file("one")}, {"link", link("file")}},
                 two = {{"file", file("two")}, {"link", link("./file")}};
  ASSERT_TRUE(tree_->update(one));
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, reads{0};
  std::thread reader([&] {
    while (!done || reads < 100) {
      const std::string text = text_of(at("link"));
      if (text != "one" && text != "two") ++wrong;
      ++reads;
    }
  });
  for (int i = 0; i < 3000; ++i) {
    if (!tree_->update(i % 2 == 0 ? two : one)) ++wrong;
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(TreeTest, IsUsableOnlyByItsProcess) {
  EXPECT_TRUE(tree_->usable());
  const pid_t child = fork();
  if (child == 0) _exit(tree_->usable() ? 1 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  fs::remove_all(tree_->path());
  EXPECT_FALSE(tree_->usable());
  // Somebody else's directory of the same name is not ours.
  ASSERT_TRUE(fs::create_directory(tree_->path() + "-other"));
  fs::rename(tree_->path() + "-other", tree_->path());
  EXPECT_FALSE(tree_->usable());
}

TEST_F(TreeTest, ReportsWhatDoesNotWork) {
  ASSERT_TRUE(tree_->update({{"a", {}}}));
  std::ofstream(at("a/foreign")) << "in the way";
  EXPECT_FALSE(tree_->update({}));
}

// A process that makes a tree and does not remove it.
std::string leave_tree_behind() {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const auto tree = Tree::create();
    tree->update({{"a", {}}, {"a/b", {}}, {"a/b/file", file("x")}, {"a/out", link("/tmp")}});
    const bool written = write(pipe_ends[1], tree->path().data(), tree->path().size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(pipe_ends[1]);
  char path[256] = {};
  const ssize_t length = read(pipe_ends[0], path, sizeof(path) - 1);
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return length > 0 ? path : "";
}

TEST(TreeSweep, RemovesWhatDeadProcessesLeft) {
  const std::string left = leave_tree_behind();
  ASSERT_TRUE(fs::exists(left + "/a/b/file"));
  const std::string precious = "/tmp/uroce-tree-test-" + std::to_string(getpid());
  std::ofstream(precious) << "x";
  const auto tree = Tree::create();
  ASSERT_NE(tree, nullptr);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(precious)) << "behind a link in it";
  fs::remove(precious);
  tree->remove();
  EXPECT_FALSE(fs::exists(tree->path()));
}

TEST(TreeSweep, LeavesTheLivingAndLinksAlone) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(done[1]);
    const auto tree = Tree::create();
    char byte = 0;
    if (write(ready[1], tree->path().data(), tree->path().size()) <= 0 || read(done[0], &byte, 1) != 0) _exit(1);
    const bool still_there = tree->usable();
    tree->remove();
    _exit(still_there ? 0 : 2);
  }
  close(done[0]);
  char path[256] = {};
  ASSERT_GT(read(ready[0], path, sizeof(path) - 1), 0);
  // A link with the name of a dead process's tree: what it leads to is not ours to remove.
  const std::string target = "/tmp/uroce-tree-target-" + std::to_string(getpid());
  fs::create_directory(target);
  std::ofstream(target + "/file") << "x";
  TreeOwner dead = current_owner();
  dead.process = 0x7ffffffe;
  const std::string trap = "/tmp/" + tree_name_template(dead);
  fs::create_symlink(target, trap);

  const auto tree = Tree::create();
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(fs::exists(target + "/file"));
  close(done[1]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  fs::remove(trap);
  fs::remove_all(target);
  tree->remove();
  for (const int descriptor : {ready[0], ready[1]}) close(descriptor);
}

}  // namespace
}  // namespace uroce::files

// SPDX-License-Identifier: BSD-2-Clause
// Captures whose output is slow, stuck, full, or a ring of files.
#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/fork.h"
#include "capture/capture.h"
#include "tests/capture/capture_rig.h"

namespace uroce::io::test {
namespace {

using pcapng::Direction;

// A pipe that nobody reads: all traffic goes through, the capture counts what it misses and says so where it is
// missing.
TEST(Capture, WhoDoesNotReadLosesPacketsAndStopsNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Bench bench;
  CaptureSettings settings;
  settings.ring_size = 1 << 16;
  TestCapture capture(bench.tap, std::make_unique<OneDescriptor>(ends[1]), settings);
  uint64_t sent = 0;
  TestBurst burst;
  for (uint32_t psn = 0; psn < 20; ++psn) burst.add(envelope_v4(), psn, 1000);
  // More than ring, buffer and pipe hold together.
  for (int i = 0; i < 200 || bench.captured->counters().capture_dropped < 100; ++i) {
    ASSERT_EQ(bench.captured->send(burst.packets()), burst.size());
    sent += burst.size();
    bench.discard_at_peer();
    std::this_thread::yield();
  }
  const uint64_t missing_so_far = bench.captured->counters().capture_dropped;
  TemporaryDirectory directory;
  std::thread reader([&] {
    std::ofstream file(directory / "x.pcapng", std::ios::binary);
    std::array<char, 4096> bytes;
    for (ssize_t n; (n = read(ends[0], bytes.data(), bytes.size())) > 0;) file.write(bytes.data(), n);
  });
  // Now that somebody reads, more packets get through, and the first of them tells of the gap.
  const auto deadline = std::chrono::steady_clock::now() + kPatient;
  for (uint64_t after = 0; after < 2000 && std::chrono::steady_clock::now() < deadline;) {
    const uint64_t before = bench.captured->counters().capture_dropped;
    bench.captured->send(burst.packets().first(1));
    ++sent;
    after += bench.captured->counters().capture_dropped == before;
    bench.discard_at_peer();
    std::this_thread::yield();
  }
  capture.finish();
  reader.join();
  close(ends[0]);
  const uint64_t missing = bench.captured->counters().capture_dropped;
  EXPECT_GE(missing, missing_so_far);
  EXPECT_EQ(capture.outcome.dropped, missing);
  EXPECT_EQ(capture.outcome.captured, sent - missing);
  EXPECT_EQ(capture.outcome.error, 0);
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  EXPECT_EQ(contents.records.size(), sent - missing);
  uint64_t told = 0;
  for (const pcapng::Record& record : contents.records) {
    unsigned long long count = 0;
    if (std::sscanf(record.comment.c_str(), "capture: %llu packet", &count) == 1) told += count;
  }
  EXPECT_EQ(told, missing);
}

TEST(Capture, StopsInTimeWhenNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  int control[2];
  ASSERT_EQ(pipe(control), 0);
  // As a client that asks to stop: its descriptor becomes readable.
  class Control final : public CaptureControl {
   public:
    Control(int fd, Outcome& outcome) : fd_(fd), outcome_(outcome) {}
    int descriptor() const override { return fd_; }
    bool stop_requested() override { return true; }
    void on_end(uint64_t, uint64_t, int error) override { outcome_.error = error; }

   private:
    int fd_;
    Outcome& outcome_;
  };
  Bench bench;
  Outcome outcome;
  CaptureSession session({}, std::make_unique<OneDescriptor>(ends[1]), std::make_unique<Control>(control[0], outcome));
  ASSERT_EQ(session.start(), 0);
  session.add_tap(bench.tap);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 20; ++psn) burst.add(envelope_v4(), psn, 1000);
  for (int i = 0; i < 100; ++i) {
    bench.captured->send(burst.packets());
    bench.discard_at_peer();
  }
  ASSERT_EQ(write(control[1], "x", 1), 1);
  EXPECT_TRUE(session.wait(kPatient));
  EXPECT_EQ(outcome.error, ETIMEDOUT);
  for (const int fd : {ends[0], control[0], control[1]}) close(fd);
}

TEST(Capture, AFullDiskEndsTheCaptureAndNothingElse) {
  Bench bench;
  TestCapture capture(bench.tap, "/dev/null");
  capture.finish();
  EXPECT_EQ(capture.outcome.error, 0);
  int ends[2];  // the reader goes away
  ASSERT_EQ(pipe(ends), 0);
  TestCapture broken(bench.tap, std::make_unique<OneDescriptor>(ends[1]));
  close(ends[0]);
  TestBurst burst;
  burst.add(envelope_v4(), 1, 100);
  bench.captured->send(burst.packets());
  EXPECT_TRUE(broken.session->wait(kPatient));
  EXPECT_EQ(broken.outcome.error, EPIPE);
  EXPECT_FALSE(bench.tap->listening());
  EXPECT_EQ(bench.captured->send(burst.packets()), 1u);

  CaptureSession full({}, std::make_unique<CaptureFiles>("/dev/full", 0, 0), nullptr);
  EXPECT_EQ(full.start(), ENOSPC);
  CaptureSession nowhere({}, std::make_unique<CaptureFiles>("/nonexistent/x.pcapng", 0, 0), nullptr);
  EXPECT_EQ(nowhere.start(), ENOENT);
}

TEST(Capture, ARingOfFilesKeepsTheLatest) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture capture(bench.tap, std::make_unique<CaptureFiles>(directory / "x.y.pcapng", 3, 20000));
  for (uint32_t psn = 0; psn < 200; ++psn) {
    TestBurst burst;
    burst.add(envelope_v4(), psn, 1000);
    bench.captured->send(burst.packets());
    bench.discard_at_peer();
  }
  capture.finish();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 3u);
  uint32_t psn = 200;
  for (size_t i = 3; i-- > 0;) {
    const CaptureContents contents = read_capture(directory / names[i]);
    ASSERT_GE(contents.records.size(), 1u);
    ASSERT_EQ(contents.interfaces.size(), 1u) << "each file stands for itself";
    EXPECT_LE(std::filesystem::file_size(directory / names[i]), 22000u);
    for (size_t k = contents.records.size(); k-- > 0;) {
      pcapng::RocePart part;
      ASSERT_EQ(pcapng::parse_record(contents.records[k], part), wire::FrameError::kNone);
      EXPECT_EQ(psn_of({part.envelope, part.ib}), --psn);
    }
  }
  EXPECT_LE(psn, 200u - 2 * 18);  // two full ones at least
  EXPECT_EQ(names[2].substr(0, 4), "x.y_");
}

// Two processes, or two captures, that are told the same name do not write into each other's file.
TEST(Capture, AFileInUseIsLeftAlone) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture first(bench.tap, directory / "x.pcapng");
  TestCapture second(bench.tap, directory / "x.pcapng");
  TestBurst burst;
  burst.add(envelope_v4(), 1, 100);
  bench.captured->send(burst.packets());
  first.finish();
  second.finish();
  EXPECT_EQ(read_capture(directory / "x.pcapng").records.size(), 1u);
  EXPECT_EQ(read_capture(directory / ("x_" + std::to_string(getpid()) + ".pcapng")).records.size(), 1u);
}

constexpr uid_t kStranger = 65534;

// Names in a directory to which captures are opened and closed again.
class CaptureFileNames : public testing::Test {
 protected:
  std::string name(const char* file) const { return directory / file; }
  // 0 or a positive errno value.
  int open_capture(const char* file) const {
    CaptureFiles files(name(file), 0, 0);
    const int fd = files.open_next();
    if (fd < 0) return -fd;
    ForkGuard().close(fd);
    return 0;
  }
  // Creates a file of `size` bytes, or empties it down to that.
  void put(const char* file, size_t size, mode_t mode = 0644) const {
    std::ofstream(name(file)) << std::string(size, 'x');
    chmod(name(file).c_str(), mode);
  }
  struct stat status(const char* file) const {
    struct stat found {};
    EXPECT_EQ(lstat(name(file).c_str(), &found), 0) << file;
    return found;
  }

  TemporaryDirectory directory;
};

TEST_F(CaptureFileNames, OnlyTheOwnerReadsWhatIsCaptured) {
  const mode_t before = umask(0);
  EXPECT_EQ(open_capture("new"), 0);
  umask(before);
  EXPECT_EQ(status("new").st_mode & 07777, mode_t{0600});
  put("old", 10, 0644);
  EXPECT_EQ(open_capture("old"), 0);
  EXPECT_EQ(status("old").st_mode & 07777, mode_t{0600}) << "also one that was there";
  EXPECT_EQ(status("old").st_size, 0);
}

TEST_F(CaptureFileNames, LinksAreNotFollowed) {
  put("target", 10);
  ASSERT_EQ(symlink(name("target").c_str(), name("link").c_str()), 0);
  ASSERT_EQ(symlink(name("absent").c_str(), name("dangling").c_str()), 0);
  EXPECT_EQ(open_capture("link"), ELOOP);
  EXPECT_EQ(open_capture("dangling"), ELOOP);
  EXPECT_EQ(status("target").st_size, 10);
  EXPECT_FALSE(std::filesystem::exists(name("absent")));
  EXPECT_NE(capture_error_text(ELOOP).find("symbolic link"), std::string::npos);
}

TEST_F(CaptureFileNames, AFileWithASecondNameIsNotEmptied) {
  put("target", 10);
  ASSERT_EQ(link(name("target").c_str(), name("second").c_str()), 0);
  EXPECT_EQ(open_capture("second"), EEXIST);
  EXPECT_EQ(status("target").st_size, 10);
  EXPECT_EQ(status("target").st_mode & 07777, mode_t{0644});
  EXPECT_NE(capture_error_text(EEXIST).find("another user"), std::string::npos);
}

// As the shell gives it for --capture >(COMMAND).
TEST_F(CaptureFileNames, ADescriptorOfOurOwnIsNoLinkOfSomebodyElse) {
  put("target", 10);
  const int file = open(name("target").c_str(), O_WRONLY);
  CaptureFiles files("/dev/fd/" + std::to_string(file), 0, 0);
  const int fd = files.open_next();
  ASSERT_GE(fd, 0) << capture_error_text(-fd);
  EXPECT_EQ(status("target").st_mode & 07777, mode_t{0644}) << "whoever made it said who may read it";
  ForkGuard().close(fd);
  close(file);
}

// Root could write them all.
TEST_F(CaptureFileNames, WhatBelongsToAnotherUserIsNotWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: makes files of another user";
  put("file", 10);
  ASSERT_EQ(mkfifo(name("pipe").c_str(), 0666), 0);
  for (const char* const theirs : {"file", "pipe"}) ASSERT_EQ(chown(name(theirs).c_str(), kStranger, kStranger), 0);
  const int reader = open(name("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(open_capture("file"), EEXIST);
  EXPECT_EQ(open_capture("pipe"), EEXIST);
  EXPECT_EQ(status("file").st_size, 10);
  EXPECT_EQ(status("file").st_mode & 07777, mode_t{0644});
  ASSERT_EQ(chown(name("pipe").c_str(), 0, 0), 0);
  EXPECT_EQ(open_capture("pipe"), 0) << "one's own pipe is for a reader that one has started";
  close(reader);
}

}  // namespace
}  // namespace uroce::io::test

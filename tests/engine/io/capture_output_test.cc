// Captures whose output is slow, stuck, full, or a ring of files.
#include <algorithm>
#include <array>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>
#include <unistd.h>

#include "engine/io/capture.h"
#include "tests/engine/io/capture_rig.h"

namespace uroce::io::test {
namespace {

using trace::Direction;

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
  for (const trace::Record& record : contents.records) {
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
      trace::RocePart part;
      ASSERT_EQ(trace::parse_record(contents.records[k], part), wire::FrameError::kNone);
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

}  // namespace
}  // namespace uroce::io::test

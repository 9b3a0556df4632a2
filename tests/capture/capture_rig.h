// SPDX-License-Identifier: BSD-2-Clause
// What the tests of the capture stage share: a link with the stage at one end, a directory of their own, a session that
// writes into it, and what is in the files afterwards.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "capture/capture.h"
#include "capture/session.h"
#include "engine/io/fault_injector.h"
#include "engine/io/memory_link.h"
#include "pcapng/capture_reader.h"
#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "uroce-capture-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

struct CaptureContents {
  std::vector<pcapng::Record> records;
  std::vector<pcapng::Interface> interfaces;
  bool good = false;

  const std::string& interface(const pcapng::Record& record) const { return interfaces.at(record.interface).name; }
};

inline CaptureContents read_capture(const std::string& path) {
  CaptureContents contents;
  std::ifstream in(path, std::ios::binary);
  pcapng::CaptureReader reader(in);
  pcapng::Record record;
  pcapng::ReadResult result;
  while ((result = reader.next(record)) == pcapng::ReadResult::kRecord) contents.records.push_back(record);
  EXPECT_EQ(result, pcapng::ReadResult::kEnd) << path << ": " << reader.error();
  contents.good = result == pcapng::ReadResult::kEnd;
  contents.interfaces = reader.interfaces();
  return contents;
}

// What was told at the end of a capture; outlives the session.
struct Outcome {
  std::atomic<bool> over{false};
  uint64_t captured = 0, dropped = 0;
  int error = 0;
};

class NotingControl final : public CaptureControl {
 public:
  explicit NotingControl(Outcome& outcome) : outcome_(outcome) {}
  void on_end(uint64_t captured, uint64_t dropped, int error) override {
    outcome_.captured = captured;
    outcome_.dropped = dropped;
    outcome_.error = error;
    outcome_.over = true;
  }

 private:
  Outcome& outcome_;
};

// Gives out one descriptor.
class OneDescriptor final : public CaptureOutput {
 public:
  explicit OneDescriptor(int fd) : fd_(fd) {}
  int open_next() override { return std::exchange(fd_, -ECANCELED); }

 private:
  int fd_;
};

inline constexpr std::chrono::milliseconds kPatient{20000};  // only ever waited out by a failing test

// A session that captures from `tap` into a file, or into what `output` says.
struct TestCapture {
  TestCapture(const std::shared_ptr<CaptureTap>& tap, std::unique_ptr<CaptureOutput> output,
              CaptureSettings settings = {})
      : session(std::make_unique<CaptureSession>(std::move(settings), std::move(output),
                                                 std::make_unique<NotingControl>(outcome))) {
    EXPECT_EQ(session->start(), 0);
    session->add_tap(tap);
  }
  TestCapture(const std::shared_ptr<CaptureTap>& tap, const std::string& path, CaptureSettings settings = {})
      : TestCapture(tap, std::make_unique<CaptureFiles>(path, 0, 0), std::move(settings)) {}
  void finish() {
    session->request_stop();
    EXPECT_TRUE(session->wait(kPatient));
    session.reset();
  }

  Outcome outcome;
  std::unique_ptr<CaptureSession> session;
};

inline TapInfo tap_info(const std::string& netdev = "eth0") {
  return {.netdev = netdev,
          .device = "uroce_" + netdev,
          .description = "memory link",
          .mac = {2, 0, 0, 0, 0, 1},
          .addresses = {ipv4(192, 0, 2, 1), ipv6(1)}};
}

inline uint64_t bit(Counter counter) {
  return uint64_t{1} << static_cast<uint8_t>(counter);
}

// A link with a capture stage around one end, which may make faults.
struct Bench {
  explicit Bench(const FaultSpec& spec = {}, const MemoryLinkConfig& config = {})
      : tap(std::make_shared<CaptureTap>(tap_info())) {
    auto [a, b] = make_memory_link(config);
    plain = std::move(a);
    under = b.get();
    under->observe_malformed([this](std::span<const uint8_t> frame, wire::FrameError error) {
      tap->malformed(frame, error, Capture::wall_clock());
    });
    std::unique_ptr<PacketIo> inner = std::move(b);
    if (spec.drop > 0) {
      auto injector = std::make_unique<FaultInjector>(std::move(inner), spec);
      injector->observe_dropped([this](const RxPacket& packet) { tap->not_delivered(packet, Capture::wall_clock()); });
      faulty = injector.get();
      inner = std::move(injector);
    }
    captured = std::make_unique<Capture>(std::move(inner), tap);
  }

  // What the engine does with what has arrived; `verdict` is what became of each packet. How many there were.
  size_t receive(uint64_t verdict = 0) {
    std::array<RxPacket, 64> received;
    const size_t count = captured->receive(received);
    if (count > 0 && captured->wants_verdicts()) {
      captured->on_verdicts(std::vector<uint64_t>(count, verdict));
    }
    return count;
  }
  void receive_all() {
    for (int idle = 0; idle <= FaultInjector::kIdlePolls; ++idle) {
      if (receive() > 0) idle = 0;
    }
  }
  void discard_at_peer() const {
    std::array<RxPacket, 64> received;
    while (plain->receive(received) > 0) {
    }
  }

  std::shared_ptr<CaptureTap> tap;
  std::unique_ptr<MemoryEnd> plain;
  MemoryEnd* under;  // the end below the capture stage
  FaultInjector* faulty = nullptr;
  std::unique_ptr<Capture> captured;
};

}  // namespace uroce::io::test

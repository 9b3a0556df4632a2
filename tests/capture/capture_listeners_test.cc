// SPDX-License-Identifier: BSD-2-Clause
// Captures that begin and end while traffic flows, several at a time, and the settings they begin with.
#include <algorithm>
#include <array>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "capture/capture.h"
#include "capture/hub.h"
#include "capture/settings.h"
#include "tests/capture/capture_rig.h"

namespace uroce::io::test {
namespace {

TEST(Capture, ListenersComeAndGoWhileTrafficFlows) {
  TemporaryDirectory directory;
  Bench bench;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> moved{0};
  std::thread traffic([&] {
    TestBurst burst;
    for (uint32_t psn = 0; psn < 8; ++psn) burst.add(envelope_v4(), psn, 200);
    while (!stop) {
      ASSERT_EQ(bench.captured->send(burst.packets()), burst.size());
      bench.discard_at_peer();
      bench.plain->send(burst.packets());
      bench.receive();
      moved += 16;
    }
  });
  std::vector<std::thread> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        const std::string file = directory / (std::to_string(i) + ".pcapng");
        CaptureSettings settings;
        settings.max_packets = round % 2 ? 3000 : 100;
        auto session = std::make_unique<CaptureSession>(settings, std::make_unique<CaptureFiles>(file, 0, 0), nullptr);
        ASSERT_EQ(session->start(), 0);
        static std::mutex one_at_a_time;  // as the hub sees to it
        {
          std::lock_guard guard(one_at_a_time);
          session->add_tap(bench.tap);
        }
        const uint64_t from = moved;
        while (moved < from + 200) std::this_thread::yield();
        std::lock_guard guard(one_at_a_time);
        session.reset();
        EXPECT_GE(read_capture(file).records.size(), 100u);
      }
    });
  }
  for (std::thread& listener : listeners) listener.join();
  stop = true;
  traffic.join();
  EXPECT_FALSE(bench.tap->listening());
}

// While somebody listens packets are to be as on a wire. Those that are longer were on their way before the capture.
TEST(Capture, LongPacketsAreNotAskedForAndNotShown) {
  struct LongIo final : PacketIo {
    size_t receive(std::span<RxPacket> out) override {
      std::fill_n(out.begin(), 2, RxPacket{.envelope = envelope_v4(), .ib = bytes});
      out[0].psns = 2;
      return 2;
    }
    size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
    bool flush() override { return true; }
    std::span<const pollfd> wait_descriptors() const override { return {}; }
    bool prepare_to_wait() override { return true; }
    uint32_t max_udp_length() const override { return 1500; }
    std::string description() const override { return "long"; }
    IoCounters counters() const override { return {}; }
    uint32_t long_payload(wire::Qpn) const override { return 65536; }
    void show_packets(bool on) override { shown.push_back(on); }

    std::vector<uint8_t> bytes = std::vector<uint8_t>(100);
    std::vector<bool> shown;
  };
  TemporaryDirectory directory;
  const auto tap = std::make_shared<CaptureTap>(tap_info());
  auto inner = std::make_unique<LongIo>();
  LongIo& below = *inner;
  Capture captured(std::move(inner), tap);
  const auto receive = [&captured] {
    std::array<RxPacket, 64> received;
    const size_t count = captured.receive(received);
    if (captured.wants_verdicts()) captured.on_verdicts(std::vector<uint64_t>(count));
  };
  TestBurst burst;
  for (uint32_t psn = 0; psn < 2; ++psn) burst.add(envelope_v4(), psn, 100);
  burst.packets()[0].psns = 2;
  receive();
  EXPECT_EQ(captured.long_payload(wire::Qpn(1)), 65536u);
  TestCapture capture(tap, directory / "long.pcapng");
  EXPECT_EQ(captured.long_payload(wire::Qpn(1)), 0u);
  receive();
  captured.send(burst.packets());
  capture.finish();
  receive();
  EXPECT_EQ(captured.long_payload(wire::Qpn(1)), 65536u);
  EXPECT_EQ(below.shown, (std::vector<bool>{true, false}));
  EXPECT_EQ(capture.outcome.captured, 2u);
}

// Traffic that never leaves the ring empty does not keep a capture from ending. Here it comes from the writer thread
// itself: ten packets, when a file is full that five had room in.
TEST(Capture, EndsInTheMiddleOfTraffic) {
  class Source final : public CaptureOutput {
   public:
    explicit Source(Bench& bench) : bench_(bench) {
      for (uint32_t psn = 0; psn < 10; ++psn) burst_.add(envelope_v4(), psn, 100);
    }
    uint64_t size_limit() const override { return 1000; }
    int open_next() override {
      if (++calls < 20000) send(burst_);
      if (calls == 100) session->request_stop();
      return open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
    // One thread at a time is the packet path; the writer may ask for a file while the test is still sending.
    void send(TestBurst& burst) {
      std::lock_guard progress(progress_);
      bench_.tap->sent(burst.packets(), 1);
    }
    int calls = 0;
    CaptureSession* session = nullptr;

   private:
    Bench& bench_;
    std::mutex progress_;
    TestBurst burst_;
  };
  Bench bench;
  auto source = std::make_unique<Source>(bench);
  Source& files = *source;
  Outcome outcome;
  CaptureSession session({}, std::move(source), std::make_unique<NotingControl>(outcome));
  files.session = &session;
  ASSERT_EQ(session.start(), 0);
  session.add_tap(bench.tap);
  TestBurst first;
  for (uint32_t psn = 0; psn < 20; ++psn) first.add(envelope_v4(), psn, 100);
  files.send(first);
  ASSERT_TRUE(session.wait(kPatient));
  EXPECT_GE(files.calls, 100);
  EXPECT_LT(files.calls, 2000);
  EXPECT_EQ(outcome.dropped, 0u);
}

// The process ends and does not wait for it: every packet is in one of the two counts, which are told once.
TEST(CaptureSession, OneThatIsGivenUpSaysWhatIsMissing) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const std::string name = "/proc/self/fd/" + std::to_string(pipe_ends[1]);
  Bench bench;
  TestCapture capture(bench.tap, name);
  constexpr uint64_t kPackets = 3000;
  for (uint32_t psn = 0; psn < kPackets; ++psn) {
    TestBurst burst;
    burst.add(envelope_v4(), psn, 1000);
    bench.captured->send(burst.packets());
    bench.discard_at_peer();
  }
  capture.session->request_stop();
  EXPECT_FALSE(capture.session->wait(std::chrono::milliseconds(50)));
  capture.session->give_up();
  EXPECT_TRUE(capture.outcome.over);
  EXPECT_EQ(capture.outcome.error, ETIMEDOUT);
  EXPECT_EQ(capture.outcome.captured + capture.outcome.dropped, kPackets);
  EXPECT_GT(capture.outcome.dropped, 0u);
  capture.outcome.over = false;
  close(pipe_ends[0]);
  EXPECT_TRUE(capture.session->wait(kPatient));
  EXPECT_FALSE(capture.outcome.over) << "told twice";
  close(pipe_ends[1]);
}

TEST(CaptureHub, ACaptureHearsDevicesThatOpenLater) {
  TemporaryDirectory directory;
  CaptureHub hub;
  Outcome outcome;
  CaptureSettings settings;
  ASSERT_EQ(hub.start(settings, std::make_unique<CaptureFiles>(directory / "x.pcapng", 0, 0),
                      std::make_unique<NotingControl>(outcome)),
            0);
  settings.device = "eth1";
  ASSERT_EQ(hub.start(settings, std::make_unique<CaptureFiles>(directory / "y.pcapng", 0, 0), nullptr), 0);
  TestBurst burst;
  burst.add(envelope_v4(), 1, 100);
  const auto send_over = [&](const std::string& netdev) {
    const auto tap = std::make_shared<CaptureTap>(tap_info(netdev));
    hub.add_tap(tap);
    Capture io(make_memory_loop(), tap, [&hub, tap] { hub.remove_tap(*tap); });
    io.send(burst.packets());
    EXPECT_NE(hub.description().find("uroce_" + netdev + " (" + netdev + "): memory link\n"), std::string::npos);
  };
  send_over("eth0");
  send_over("eth1");
  send_over("eth1");
  EXPECT_EQ(hub.description(), "");
  hub.finish();
  EXPECT_TRUE(outcome.over);
  EXPECT_EQ(outcome.captured, 3u);
  const CaptureContents all = read_capture(directory / "x.pcapng");
  ASSERT_EQ(all.interfaces.size(), 3u);
  EXPECT_EQ(all.interface(all.records[0]), "eth0");
  EXPECT_EQ(all.interface(all.records[2]), "eth1");
  EXPECT_EQ(read_capture(directory / "y.pcapng").records.size(), 2u);
}

TEST(CaptureHub, MoreCapturesThanATapTakesAreRefused) {
  CaptureHub hub;
  for (size_t i = 0; i < CaptureTap::kMaxListeners; ++i) {
    EXPECT_EQ(hub.start({}, std::make_unique<CaptureFiles>("/dev/null", 0, 0), nullptr), 0);
  }
  EXPECT_EQ(hub.start({}, std::make_unique<CaptureFiles>("/dev/null", 0, 0), nullptr), EBUSY);
  hub.finish();
}

// --- settings --------------------------------------------------------------------------------------------------------

TEST(CaptureSettings, NamesAndNumbers) {
  EXPECT_EQ(expand_capture_name("a-%p-%d-%%.pcapng", 42, "uroce_eth0"), "a-42-uroce_eth0-%.pcapng");
  EXPECT_EQ(expand_capture_name("plain", 42, "x"), "plain");
  EXPECT_EQ(expand_capture_name("%x", 42, "x"), std::nullopt);
  EXPECT_EQ(expand_capture_name("x%", 42, "x"), std::nullopt);
  EXPECT_TRUE(names_device("%d"));
  EXPECT_FALSE(names_device("%%d%p"));
  EXPECT_EQ(parse_capture_qpns("0x11,18"), (std::vector<uint32_t>{0x11, 18}));
  for (const char* bad :
       {"", ",", "1,", "0x", "x", "1 2", "0x1000000", "-1", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"}) {
    EXPECT_EQ(parse_capture_qpns(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_capture_number("0xFF", 255), 255u);
  EXPECT_EQ(parse_capture_number("256", 255), std::nullopt);
}

}  // namespace
}  // namespace uroce::io::test

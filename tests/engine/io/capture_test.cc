#include "engine/io/capture.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include <unistd.h>

#include "engine/base/counters.h"
#include "engine/io/capture/comment.h"
#include "engine/io/capture/hub.h"
#include "engine/io/capture/settings.h"
#include "engine/io/fault_injector.h"
#include "engine/io/memory_link.h"
#include "tests/engine/io/capture_rig.h"
#include "tests/engine/io/test_packet.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

using trace::Direction;
using wire::SendReason;

TapInfo tap_info(const std::string& netdev = "eth0") {
  return {.netdev = netdev,
          .device = "uroce_" + netdev,
          .description = "memory link",
          .mac = {2, 0, 0, 0, 0, 1},
          .addresses = {ipv4(192, 0, 2, 1), ipv6(1)}};
}

uint64_t bit(Counter counter) {
  return uint64_t{1} << static_cast<uint8_t>(counter);
}

// A link with a capture stage around one end, which may make faults.
struct Bench {
  explicit Bench(const FaultSpec& spec = {}, const MemoryLinkConfig& config = {})
      : tap(std::make_shared<CaptureTap>(tap_info())) {
    auto [a, b] = make_memory_link(config);
    plain = std::move(a);
    under = b.get();
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

// --- the ring --------------------------------------------------------------------------------------------------------

TEST(CaptureRing, GivesBackWhatWasPutInAndRefusesWhatDoesNotFit) {
  CaptureRing ring(4096);
  std::mt19937 random(5);
  std::vector<std::vector<uint8_t>> in_ring;  // the model
  size_t refused = 0, wrapped = 0;
  for (int step = 0; step < 20000; ++step) {
    const size_t size = random() % 600;
    if (uint8_t* const room = ring.reserve(size)) {
      std::vector<uint8_t> content(size);
      for (uint8_t& byte : content) byte = static_cast<uint8_t>(random());
      std::copy(content.begin(), content.end(), room);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(room) % 8, 0u);
      ring.commit();
      in_ring.push_back(std::move(content));
    } else {
      ++refused;
      ASSERT_GT(ring.used() + 2 * 616, ring.size()) << "refused with room to spare";
    }
    while (!in_ring.empty() && random() % 3 == 0) {
      const std::span<uint8_t> front = ring.front();
      ASSERT_TRUE(std::equal(front.begin(), front.end(), in_ring.front().begin(), in_ring.front().end()));
      ring.pop();
      in_ring.erase(in_ring.begin());
      ++wrapped;
    }
    ASSERT_EQ(in_ring.empty(), ring.front().data() == nullptr);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(wrapped, 1000u);
  EXPECT_EQ(ring.reserve(4096), nullptr) << "can never fit";
}

TEST(CaptureRing, OneThreadFillsWhileAnotherEmpties) {
  CaptureRing ring(1 << 14);
  constexpr uint32_t kEntries = 50000;
  std::thread producer([&] {
    for (uint32_t i = 0; i < kEntries;) {
      uint8_t* const room = ring.reserve(4 + i % 200);
      if (room == nullptr) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(room, &i, sizeof(i));
      ring.commit();
      ++i;
    }
  });
  for (uint32_t i = 0; i < kEntries;) {
    const std::span<uint8_t> front = ring.front();
    if (front.data() == nullptr) {
      std::this_thread::yield();
      continue;
    }
    uint32_t value;
    std::memcpy(&value, front.data(), sizeof(value));
    EXPECT_EQ(value, i);
    EXPECT_EQ(front.size(), 4 + i % 200);
    ring.pop();
    ++i;
  }
  producer.join();
}

// --- what is in the file ---------------------------------------------------------------------------------------------

TEST(Capture, FramesAreThoseOfTheWire) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture capture(bench.tap, directory / "x.pcapng");
  std::vector<std::vector<uint8_t>> sent, arrived;
  bench.under->record_sent(&sent);
  bench.plain->record_sent(&arrived);
  for (uint32_t psn = 0; psn < 20; ++psn) {
    TestBurst out, in;
    out.add(psn % 2 ? envelope_v6() : envelope_v4(), psn, 100 + psn, 1 + psn % 4);
    in.add(psn % 2 ? envelope_v4() : envelope_v6(), 1000 + psn, psn);
    ASSERT_EQ(bench.captured->send(out.packets()), 1u);
    ASSERT_EQ(bench.plain->send(in.packets()), 1u);
    ASSERT_EQ(bench.receive(), 1u);
  }
  capture.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 40u);
  ASSERT_EQ(contents.interfaces.size(), 1u);
  EXPECT_EQ(contents.interfaces[0].name, "eth0");
  EXPECT_NE(contents.interfaces[0].description.find("uroce_eth0, memory link, process "), std::string::npos);
  for (size_t i = 0; i < contents.records.size(); ++i) {
    const trace::Record& record = contents.records[i];
    EXPECT_EQ(record.direction, i % 2 == 0 ? Direction::kOut : Direction::kIn);
    EXPECT_EQ(record.frame, i % 2 == 0 ? sent[i / 2] : arrived[i / 2]) << i;
    EXPECT_EQ(record.comment, "");
    trace::RocePart part;
    ASSERT_EQ(trace::parse_record(record, part), wire::FrameError::kNone);
    EXPECT_TRUE(wire::icrc_matches(part.envelope, part.ib));
  }
  EXPECT_EQ(capture.outcome.captured, 40u);
  EXPECT_EQ(capture.outcome.dropped, 0u);
}

TEST(Capture, NothingIsRecordedWhileNobodyListens) {
  TemporaryDirectory directory;
  Bench bench;
  TestBurst burst;
  burst.add(envelope_v4(), 1, 10);
  bench.captured->send(burst.packets());
  bench.plain->send(burst.packets());
  EXPECT_FALSE(bench.captured->wants_verdicts());
  bench.receive();
  TestCapture capture(bench.tap, directory / "x.pcapng");
  bench.captured->send(burst.packets());
  capture.finish();
  EXPECT_FALSE(bench.tap->listening());
  bench.captured->send(burst.packets());
  EXPECT_EQ(read_capture(directory / "x.pcapng").records.size(), 1u);
}

// Times are those of the wall clock, and never go back.
TEST(Capture, TimesAreWallClock) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture capture(bench.tap, directory / "x.pcapng");
  const auto now = [] { return Time(Duration(Capture::wall_clock())); };
  const Time before = now();
  for (uint32_t psn = 0; psn < 100; ++psn) {
    TestBurst burst;
    burst.add(envelope_v4(), psn, 10);
    bench.captured->send(burst.packets());
    bench.plain->send(burst.packets());
    bench.receive();
  }
  const Time after = now();
  capture.finish();
  Time last = before;
  for (const trace::Record& record : read_capture(directory / "x.pcapng").records) {
    EXPECT_GE(record.time, last);
    last = record.time;
  }
  EXPECT_LE(last, after);
}

TEST(Capture, SnapLengthKeepsTheBeginning) {
  for (const uint32_t snap : {64u, 100u, 300u}) {
    SCOPED_TRACE(snap);
    TemporaryDirectory directory;
    Bench bench;
    CaptureSettings settings;
    settings.filter.snap = snap;
    TestCapture capture(bench.tap, directory / "x.pcapng", settings);
    std::vector<std::vector<uint8_t>> frames;
    bench.under->record_sent(&frames);
    bench.plain->record_sent(&frames);
    for (const size_t size : {0u, 30u, 61u, 200u, 1000u}) {
      TestBurst burst;
      burst.add(envelope_v4(), 7, size, size > 3 ? 3 : 1);
      bench.captured->send(burst.packets());
      bench.plain->send(burst.packets());
      bench.receive();
    }
    capture.finish();
    const CaptureContents contents = read_capture(directory / "x.pcapng");
    ASSERT_EQ(contents.records.size(), frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      const trace::Record& record = contents.records[i];
      EXPECT_EQ(record.original_length, frames[i].size());
      frames[i].resize(std::min<size_t>(frames[i].size(), snap));
      EXPECT_EQ(record.frame, frames[i]);
    }
  }
}

TEST(Capture, FilterTakesPacketsOfEitherEnd) {
  TemporaryDirectory directory;
  Bench bench;
  CaptureSettings settings;
  settings.filter.qpns = {0x77, 0x1235};
  TestCapture capture(bench.tap, directory / "x.pcapng", settings);
  TestBurst burst;  // all to QPN 0x1234
  for (uint32_t psn = 0; psn < 3; ++psn) burst.add(envelope_v4(), psn, 10);
  burst.packets()[1].source_qpn = wire::Qpn(0x77);
  bench.captured->send(burst.packets());
  bench.plain->send(burst.packets());
  bench.receive();
  capture.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 1u);
  EXPECT_EQ(contents.records[0].direction, Direction::kOut);

  settings.filter.qpns = {0x1234};
  TestCapture second(bench.tap, directory / "y.pcapng", settings);
  bench.captured->send(burst.packets());
  bench.plain->send(burst.packets());
  bench.receive();
  second.finish();
  EXPECT_EQ(read_capture(directory / "y.pcapng").records.size(), 6u);
}

// What the link has no room for is offered again, and is in the capture when it has been taken.
TEST(Capture, BackpressureIsNotTraffic) {
  TemporaryDirectory directory;
  Bench bench({}, {.queue_capacity = 4});
  TestCapture capture(bench.tap, directory / "x.pcapng");
  TestBurst burst;
  for (uint32_t psn = 0; psn < 6; ++psn) burst.add(envelope_v4(), psn, 10);
  ASSERT_EQ(bench.captured->send(burst.packets()), 4u);
  bench.discard_at_peer();
  ASSERT_EQ(bench.captured->send(burst.packets().subspan(4)), 2u);
  capture.finish();
  EXPECT_EQ(read_capture(directory / "x.pcapng").records.size(), 6u);
}

TEST(Capture, EndsByItselfAfterSoManyPackets) {
  TemporaryDirectory directory;
  Bench bench;
  CaptureSettings settings;
  settings.max_packets = 7;
  TestCapture capture(bench.tap, directory / "x.pcapng", settings);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 20; ++psn) burst.add(envelope_v4(), psn, 10);
  bench.captured->send(burst.packets());
  EXPECT_TRUE(capture.session->wait(kPatient));
  EXPECT_FALSE(bench.tap->listening());
  EXPECT_EQ(capture.outcome.captured, 7u);
  EXPECT_EQ(read_capture(directory / "x.pcapng").records.size(), 7u);
}

// A UDP socket hides the IPv4 header. What the ICRC tells of it is put back.
TEST(Capture, HiddenIpv4IdIsFoundAgain) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture capture(bench.tap, directory / "x.pcapng");
  std::vector<std::vector<uint8_t>> frames;
  bench.plain->record_sent(&frames);
  for (uint32_t psn = 0; psn < 300; ++psn) {  // IDs of both bytes
    TestBurst burst;
    burst.add(envelope_v4(), psn, psn % 50);
    bench.plain->send(burst.packets());
    std::array<RxPacket, 1> received;
    ASSERT_EQ(bench.under->receive(received), 1u);
    received[0].envelope.ip_id = 0;
    received[0].envelope.ip_id_known = false;
    bench.tap->received(received, std::array<uint64_t, 1>{}, Capture::wall_clock());
  }
  capture.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(contents.records[i].frame, frames[i]) << i;
}

// --- reasons ---------------------------------------------------------------------------------------------------------

std::string comment(const CapturedPacket& packet) {
  std::string text;
  capture_comment(packet, text);
  return text;
}

TEST(CaptureComment, SaysWhyWhatBecameOfItAndWhatWasDoneToIt) {
  EXPECT_EQ(comment({.outbound = true}), "");
  EXPECT_EQ(comment({.verdict = bit(Counter::kRxRequests) | bit(Counter::kRxAcks)}), "");
  EXPECT_EQ(comment({.outbound = true, .reason = SendReason::kTimeout}), "retransmission: the transport timer expired");
  EXPECT_EQ(comment({.outbound = true, .faults = kFaultDropped, .reason = SendReason::kPsnNak}),
            "retransmission: NAK, PSN sequence error; fault injected: dropped on send");
  EXPECT_EQ(comment({.verdict = bit(Counter::kDropBadIcrc), .faults = kFaultCorrupted}),
            "fault injected: one bit flipped; drop: ICRC mismatch");
  EXPECT_EQ(comment({.verdict = bit(Counter::kRxRequests) | bit(Counter::kRxDuplicates)}), "duplicate request");
  EXPECT_EQ(comment({.delivered = false, .faults = kFaultDropped}), "fault injected: dropped on receive");
  EXPECT_EQ(comment({.faults = kFaultDuplicated | kFaultReordered}),
            "fault injected: second copy; fault injected: held back, later packets went ahead");
  EXPECT_EQ(comment({.missing = 1, .outbound = true, .faults = kFaultDuplicated}),
            "capture: 1 packet is missing before this one; fault injected: sent twice");
  EXPECT_EQ(comment({.missing = 12}), "capture: 12 packets are missing before this one");
}

// Every drop reason shows as what the counter says, every reason to send has words.
TEST(CaptureComment, NoDropReasonAndNoSendReasonIsSilent) {
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
    const std::string text = Counters::text(static_cast<Counter>(i));
    if (text.starts_with("drop: ")) {
      EXPECT_EQ(comment({.verdict = uint64_t{1} << i}), text);
    }
  }
  for (uint8_t i = 1; i < static_cast<uint8_t>(SendReason::kCount); ++i) {
    EXPECT_GT(std::string(wire::text(static_cast<SendReason>(i))).size(), 10u) << int{i};
  }
}

TEST(Capture, ReasonsAndVerdictsStandBesideTheirPackets) {
  TemporaryDirectory directory;
  Bench bench;
  TestCapture capture(bench.tap, directory / "x.pcapng");
  TestBurst burst;
  for (uint32_t psn = 0; psn < 3; ++psn) burst.add(envelope_v4(), psn, 10);
  burst.packets()[1].reason = SendReason::kRnrNak;
  bench.captured->send(burst.packets());
  bench.plain->send(burst.packets().first(1));
  bench.receive(bit(Counter::kDropUnknownQp));
  capture.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 4u);
  EXPECT_EQ(contents.records[0].comment, "");
  EXPECT_EQ(contents.records[1].comment, wire::text(SendReason::kRnrNak));
  EXPECT_EQ(contents.records[2].comment, "");
  EXPECT_EQ(contents.records[3].comment, "drop: no such QP");
}

// The injector's own log is the truth.
TEST(Capture, WhatTheFaultInjectorDidIsAllThere) {
  TemporaryDirectory directory;
  Bench bench({.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.05, .seed = 4});
  TestCapture capture(bench.tap, directory / "x.pcapng");
  constexpr uint32_t kPackets = 3000;
  for (uint32_t psn = 0; psn < kPackets; psn += 20) {
    TestBurst burst;
    for (uint32_t i = 0; i < 20; ++i) burst.add(envelope_v4(), psn + i, 30);
    ASSERT_EQ(bench.plain->send(burst.packets()), 20u);
    bench.receive();
    ASSERT_EQ(bench.captured->send(burst.packets()), 20u);
    bench.discard_at_peer();
  }
  EXPECT_GT(bench.faulty->fault_counters().tx_corrupted, 0u);
  bench.receive_all();
  capture.finish();
  std::map<std::string, uint64_t> seen;
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  uint64_t out = 0, in = 0;
  for (const trace::Record& record : contents.records) {
    const bool taken_away = contents.interface(record) == "eth0:not-delivered";
    EXPECT_EQ(taken_away, record.comment == "fault injected: dropped on receive");
    if (!taken_away) ++(record.direction == Direction::kOut ? out : in);
    for (size_t at = 0; at < record.comment.size();) {
      const size_t end = std::min(record.comment.find("; ", at), record.comment.size());
      ++seen[record.comment.substr(at, end - at)];
      at = end + 2;
    }
  }
  const FaultCounters truth = bench.faulty->fault_counters();
  EXPECT_EQ(seen["fault injected: dropped on receive"], truth.rx_dropped);
  EXPECT_EQ(seen["fault injected: second copy"], truth.rx_duplicated);
  EXPECT_EQ(seen["fault injected: dropped on send"], truth.tx_dropped);
  EXPECT_EQ(seen["fault injected: sent twice"], truth.tx_duplicated);
  EXPECT_EQ(seen["fault injected: held back, later packets went ahead"], truth.rx_reordered);
  EXPECT_EQ(seen["fault injected: sent behind later packets"], truth.tx_reordered);
  EXPECT_EQ(seen["fault injected: sent with one bit flipped"], truth.tx_corrupted);
  // A corrupted packet may have been duplicated afterwards: both copies say so.
  EXPECT_GE(seen["fault injected: one bit flipped"], truth.rx_corrupted);
  EXPECT_EQ(out, kPackets) << "what the engine meant to send, once";
  EXPECT_EQ(in, kPackets - truth.rx_dropped + truth.rx_duplicated) << "what the engine got";
  ASSERT_EQ(contents.interfaces.size(), 2u);
  EXPECT_EQ(contents.interfaces[0].name, "eth0");
}

// --- slow disks, full disks, several files ---------------------------------------------------------------------------

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

// --- listeners come and go -------------------------------------------------------------------------------------------

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
      if (++calls < 20000) bench_.tap->sent(burst_.packets(), 1);
      if (calls == 100) session->request_stop();
      return open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
    int calls = 0;
    CaptureSession* session = nullptr;

   private:
    Bench& bench_;
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
  bench.tap->sent(first.packets(), 1);
  ASSERT_TRUE(session.wait(kPatient));
  EXPECT_GE(files.calls, 100);
  EXPECT_LT(files.calls, 2000);
  EXPECT_EQ(outcome.dropped, 0u);
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

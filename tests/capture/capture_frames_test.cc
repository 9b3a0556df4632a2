// SPDX-License-Identifier: BSD-2-Clause
// Received frames are in a capture as they arrived, whatever is in their headers; and packets between queue pairs of
// one process are in it, once.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>

#include "capture/capture.h"
#include "tests/capture/capture_rig.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

using io::SendReason;
using pcapng::Direction;

using Bytes = std::vector<uint8_t>;
constexpr size_t kPadding = 19;

// A SEND as nobody of ours would send it: VLAN tag, DSCP and CE, TTL and identification, a UDP checksum, no "don't
// fragment", and Ethernet padding behind it.
Bytes odd_frame(uint32_t psn) {
  auto [from, to] = make_memory_link();
  std::vector<Bytes> frames;
  from->record_sent(&frames);
  TestBurst burst;
  wire::Envelope envelope = envelope_v4();
  envelope.traffic_class = 0x6f;
  envelope.hop_limit = 3;
  envelope.dont_fragment = false;
  burst.add(envelope, psn, psn % 7);
  from->send(burst.packets());
  Bytes frame = frames.at(0);
  frame[wire::kEthernetSize + wire::kIpv4Size + 6] = 0xab;  // UDP checksum
  static constexpr uint8_t kTag[wire::kVlanTagSize] = {0x81, 0x00, 0x60, 0x07};
  frame.insert(frame.begin() + 12, std::begin(kTag), std::end(kTag));
  for (uint8_t pad = 0; pad < kPadding; ++pad) frame.push_back(pad + 1);
  return frame;
}

// Between a frame that was sent and what is in the capture; SIZE_MAX: they cannot be the same, not even with bits
// flipped in the InfiniBand part.
size_t flipped_bits(const Bytes& sent, const Bytes& seen) {
  constexpr size_t kIbAt = wire::kEthernetSize + wire::kVlanTagSize + wire::kIpv4Size + wire::kUdpSize;
  if (sent.size() != seen.size()) return SIZE_MAX;
  size_t bits = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    const int here = __builtin_popcount(sent[i] ^ seen[i]);
    if (here > 0 && (i < kIbAt || i >= sent.size() - kPadding)) return SIZE_MAX;
    bits += static_cast<size_t>(here);
  }
  return bits;
}

Bytes beginning(Bytes bytes, size_t size) {
  bytes.resize(std::min(bytes.size(), size));
  return bytes;
}

TEST(CaptureFrames, AreByteForByteThoseThatArrived) {
  TemporaryDirectory directory;
  Bench bench;
  CaptureSettings cut;
  cut.filter.snap = 70;
  TestCapture capture(bench.tap, directory / "x.pcapng"), snapped(bench.tap, directory / "y.pcapng", cut);
  for (uint32_t psn = 0; psn < 20; ++psn) {
    ASSERT_TRUE(bench.under->inject_frame(odd_frame(psn)));
    ASSERT_EQ(bench.receive(), 1u);
  }
  capture.finish();
  snapped.finish();
  const CaptureContents all = read_capture(directory / "x.pcapng"), beginnings = read_capture(directory / "y.pcapng");
  ASSERT_EQ(all.records.size(), 20u);
  ASSERT_EQ(beginnings.records.size(), 20u);
  for (uint32_t psn = 0; psn < 20; ++psn) {
    EXPECT_EQ(all.records[psn].frame, odd_frame(psn));
    EXPECT_EQ(beginnings.records[psn].frame, beginning(odd_frame(psn), 70));
    EXPECT_EQ(beginnings.records[psn].original_length, odd_frame(psn).size());
  }
}

// What it did not touch stays as it was; of what it touched, one bit.
TEST(CaptureFrames, StayWholeBehindTheFaultInjector) {
  TemporaryDirectory directory;
  Bench bench({.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1, .seed = 3});
  TestCapture capture(bench.tap, directory / "x.pcapng");
  std::vector<Bytes> sent;
  for (uint32_t psn = 0; psn < 500; ++psn) {
    sent.push_back(odd_frame(psn));
    ASSERT_TRUE(bench.under->inject_frame(sent.back()));
    bench.receive();
  }
  bench.receive_all();
  capture.finish();
  size_t flipped = 0, taken_away = 0;
  for (const pcapng::Record& record : read_capture(directory / "x.pcapng").records) {
    size_t fewest = SIZE_MAX;  // bits between it and the sent frame that is closest
    for (const Bytes& frame : sent) fewest = std::min(fewest, flipped_bits(frame, record.frame));
    const bool corrupted = record.comment.find("one bit flipped") != std::string::npos;
    EXPECT_EQ(fewest, corrupted ? 1u : 0u) << record.comment;
    flipped += corrupted;
    taken_away += record.comment == "fault injected: dropped on receive";
  }
  EXPECT_GT(flipped, 10u);
  EXPECT_GT(taken_away, 10u);
}

// What the packet I/O took for no packet of ours: a wrong header checksum, and a length that says too much.
TEST(CaptureFrames, MalformedOnesAreThereWithTheReason) {
  TemporaryDirectory directory;
  Bench bench;
  CaptureSettings settings;
  settings.filter.qpns = {0x1234};
  TestCapture capture(bench.tap, directory / "x.pcapng"), filtered(bench.tap, directory / "y.pcapng", settings);
  constexpr size_t kIp = wire::kEthernetSize + wire::kVlanTagSize;
  Bytes bad_checksum = odd_frame(1), bad_length = odd_frame(2);
  bad_checksum[kIp + 10] ^= 1;
  bad_length[kIp + wire::kIpv4Size + 5] ^= 1;  // UDP length
  for (const Bytes& frame : {bad_checksum, bad_length}) {
    ASSERT_TRUE(bench.under->inject_frame(frame));
    ASSERT_EQ(bench.receive(), 0u);
  }
  capture.finish();
  filtered.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 2u);
  EXPECT_EQ(contents.records[0].frame, bad_checksum);
  EXPECT_EQ(contents.records[0].comment, "drop: not a well-formed IP/UDP packet: bad IPv4 header checksum");
  EXPECT_EQ(contents.records[1].frame, bad_length);
  EXPECT_EQ(contents.records[1].comment, "drop: not a well-formed IP/UDP packet: IP and UDP length differ");
  EXPECT_EQ(contents.records[1].direction, Direction::kIn);
  EXPECT_TRUE(read_capture(directory / "y.pcapng").records.empty());
}

TEST(CaptureFrames, SayWhenTheirHeadersAreRebuilt) {
  for (const bool rebuilt : {false, true}) {
    TemporaryDirectory directory;
    TapInfo info = tap_info();
    info.kernel_routes = rebuilt;
    const auto tap = std::make_shared<CaptureTap>(info);
    TestCapture capture(tap, directory / "x.pcapng");
    capture.finish();
    const CaptureContents contents = read_capture(directory / "x.pcapng");
    ASSERT_EQ(contents.interfaces.size(), 1u);
    EXPECT_EQ(contents.interfaces[0].description.find("headers rebuilt") != std::string::npos, rebuilt);
  }
}

// --- between queue pairs of one process ------------------------------------------------------------------------------

struct LoopBench {
  LoopBench() : tap(std::make_shared<CaptureTap>(tap_info())) {
    std::unique_ptr<MemoryEnd> end = make_memory_loop();
    end->record_sent(&sent);
    io = std::make_unique<Capture>(std::move(end), tap, std::function<void()>{}, Capture::Link::kLoop);
  }
  void pass(TestBurst& burst, uint64_t verdict = 0) {
    ASSERT_EQ(io->send(burst.packets()), burst.size());
    std::array<RxPacket, 64> received;
    ASSERT_EQ(io->receive(received), burst.size());
    if (io->wants_verdicts()) io->on_verdicts(std::vector<uint64_t>(burst.size(), verdict));
  }

  std::shared_ptr<CaptureTap> tap;
  std::vector<Bytes> sent;
  std::unique_ptr<Capture> io;
};

TEST(CaptureLoop, ShowsEachPacketOnceOnAnInterfaceOfItsOwn) {
  TemporaryDirectory directory;
  LoopBench bench;
  TestCapture capture(bench.tap, directory / "x.pcapng");
  TestBurst burst;
  for (uint32_t psn = 0; psn < 10; ++psn) burst.add(psn % 2 ? envelope_v6() : envelope_v4(), psn, 100);
  burst.packets()[1].reason = SendReason::kRnrNak;
  bench.pass(burst, bit(Counter::kDropUnknownQp));
  capture.finish();
  const CaptureContents contents = read_capture(directory / "x.pcapng");
  ASSERT_EQ(contents.records.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    const pcapng::Record& record = contents.records[i];
    EXPECT_EQ(record.frame, bench.sent[i]);
    EXPECT_EQ(contents.interface(record), "eth0:loop");
    EXPECT_EQ(record.direction, Direction::kUnknown);
    EXPECT_EQ(record.comment, (i == 1 ? io::text(SendReason::kRnrNak) + std::string("; ") : "") + "drop: no such QP");
  }
  ASSERT_EQ(contents.interfaces.size(), 2u);
  EXPECT_EQ(contents.interfaces[0].name, "eth0");
  EXPECT_NE(contents.interfaces[1].description.find("between queue pairs of this process on uroce_eth0"),
            std::string::npos);
}

TEST(CaptureLoop, FilterAndSnapLengthHold) {
  TemporaryDirectory directory;
  LoopBench bench;
  TestBurst burst;  // all to QPN 0x1234
  for (uint32_t psn = 0; psn < 3; ++psn) burst.add(envelope_v4(), psn, 200);
  burst.packets()[1].source_qpn = wire::Qpn(0x77);
  const std::pair<uint32_t, size_t> kWanted[] = {{0x77, 1}, {0x1234, 3}, {0x78, 0}};
  for (const auto& [qpn, count] : kWanted) {
    CaptureSettings settings;
    settings.filter = {.snap = 80, .qpns = {qpn}};
    TestCapture capture(bench.tap, directory / "x.pcapng", settings);
    bench.pass(burst);
    capture.finish();
    const CaptureContents contents = read_capture(directory / "x.pcapng");
    ASSERT_EQ(contents.records.size(), count) << qpn;
    for (const pcapng::Record& record : contents.records) EXPECT_EQ(record.frame.size(), 80u);
  }
}

TEST(CaptureLoop, CostsNothingWhileNobodyListens) {
  LoopBench bench;
  TestBurst burst;
  burst.add(envelope_v4(), 1, 100);
  bench.pass(burst);
  EXPECT_FALSE(bench.io->wants_verdicts());
}

}  // namespace
}  // namespace uroce::io::test

// SPDX-License-Identifier: BSD-2-Clause
// What is in a capture: frames, times, filters, reasons, verdicts, faults.
#include "capture/capture.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <memory>

#include "capture/comment.h"
#include "tests/capture/capture_rig.h"
#include "tests/engine/io/stub_io.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

using io::SendReason;
using pcapng::Direction;

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
    const pcapng::Record& record = contents.records[i];
    EXPECT_EQ(record.direction, i % 2 == 0 ? Direction::kOut : Direction::kIn);
    EXPECT_EQ(record.frame, i % 2 == 0 ? sent[i / 2] : arrived[i / 2]) << i;
    EXPECT_EQ(record.comment, "");
    pcapng::RocePart part;
    ASSERT_EQ(pcapng::parse_record(record, part), wire::FrameError::kNone);
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
  for (const pcapng::Record& record : read_capture(directory / "x.pcapng").records) {
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
      const pcapng::Record& record = contents.records[i];
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

TEST(Capture, PassesOnLooks) {
  auto inner = std::make_unique<StubIo>(3, 2000);
  StubIo& stub = *inner;
  Capture io(std::move(inner), std::make_shared<CaptureTap>(tap_info()));
  expect_passes_on_looks(io, stub);
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
  EXPECT_EQ(comment({.seen_at = SeenAt::kNotDelivered, .faults = kFaultDropped}), "fault injected: dropped on receive");
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
    EXPECT_GT(std::string(io::text(static_cast<SendReason>(i))).size(), 10u) << int{i};
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
  EXPECT_EQ(contents.records[1].comment, io::text(SendReason::kRnrNak));
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
  for (const pcapng::Record& record : contents.records) {
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

}  // namespace
}  // namespace uroce::io::test

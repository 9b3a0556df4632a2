// SPDX-License-Identifier: BSD-2-Clause
// DpdkIo over a port that the test is.
#include <array>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/io/dpdk/dpdk.h"
#include "tests/engine/io/dpdk/fake_port.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "wire/bytes.h"

namespace uroce::io::test {
namespace {

constexpr wire::MacAddress kOwnMac = {2, 0, 0, 0, 0, 2};  // where test packets go

// What `io` on a port sends, as frames.
std::vector<FakePort::Bytes> frames_of(TestBurst& burst) {
  FakePort port;
  DpdkConfig config;
  config.mtu = 9000;
  DpdkIo io(FakePort::calls(), port.port(), {.queues = 1}, config);
  for (io::TxPacket& packet : burst.packets()) {
    EXPECT_EQ(io.send({&packet, 1}), 1u);
    EXPECT_TRUE(io.flush());
  }
  std::vector<FakePort::Bytes> frames;
  for (auto& [queue, frame] : port.sent) frames.push_back(std::move(frame));
  return frames;
}

class DpdkIoTest : public testing::Test {
 protected:
  explicit DpdkIoTest(uint32_t queues = 1) {
    config_.mac = kOwnMac;
    config_.mtu = 9000;
    io_.emplace(FakePort::calls(), port_.port(), DpdkPortInfo{.queues = queues}, config_);
  }
  ~DpdkIoTest() override {
    io_.reset();
    EXPECT_EQ(port_.in_hand, 0u) << "buffers that nobody gives back";
    EXPECT_TRUE(port_.closed);
  }

  void restart(const DpdkConfig& config) {
    io_.reset();
    io_.emplace(FakePort::calls(), port_.port(), DpdkPortInfo{.queues = 1}, config);
  }
  FakePort::Bytes a_frame(uint32_t psn = 1, size_t size = 100) {
    TestBurst one;
    one.add(envelope_v4(), psn, size);
    return frames_of(one).front();
  }
  void arrive(FakePort::Bytes frame) { port_.arriving.push_back({.segments = {std::move(frame)}}); }
  size_t receive() { return io_->receive(received_); }
  // Neither a packet nor an error.
  void expect_ignored() {
    EXPECT_EQ(receive(), 0u);
    EXPECT_EQ(io_->counters().rx_malformed, 0u);
    EXPECT_TRUE(port_.arriving.empty());
  }

  FakePort port_;
  DpdkConfig config_;
  std::optional<DpdkIo> io_;
  std::array<RxPacket, DpdkIo::kMaxBurst> received_;
};

TEST_F(DpdkIoTest, PacketsArriveInPlaceOrFromSeveralBuffers) {
  TestBurst burst;
  for (const size_t size : {0, 1, 63, 1024, 4096}) burst.add(envelope_v4(), 10, size);
  for (const size_t piece : {SIZE_MAX, size_t{1000}, size_t{60}}) {
    for (const FakePort::Bytes& frame : frames_of(burst)) {
      FakePort::Arriving pieces;
      for (size_t at = 0; at < frame.size(); at += std::min(piece, frame.size() - at)) {
        const size_t end = at + std::min(piece, frame.size() - at);
        pieces.segments.emplace_back(frame.begin() + static_cast<ptrdiff_t>(at),
                                     frame.begin() + static_cast<ptrdiff_t>(end));
      }
      port_.arriving.push_back(std::move(pieces));
    }
    ASSERT_EQ(receive(), burst.size());
    for (size_t i = 0; i < burst.size(); ++i) burst.expect_arrived(i, received_[i]);
  }
  EXPECT_EQ(io_->counters().rx_packets, 3 * burst.size());
}

TEST_F(DpdkIoTest, WhatIsNotForUsIsLeftAlone) {
  FakePort::Bytes frame = a_frame();
  frame[5] = 7;
  arrive(frame);  // another MAC address
  expect_ignored();

  frame = a_frame();
  std::copy(kOwnMac.begin(), kOwnMac.end(), frame.begin() + 6);
  arrive(frame);  // sent by this very host
  expect_ignored();

  frame = a_frame();
  const uint8_t tag[] = {0x81, 0, 0, 5};
  frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
  arrive(frame);  // of a VLAN
  expect_ignored();
  port_.arriving.push_back({.segments = {a_frame()}, .vlan = 5});
  expect_ignored();

  frame = a_frame();
  wire::store_be16(frame.data() + 36, 4790);
  arrive(frame);  // another port
  frame[23] = 6;
  arrive(frame);  // TCP
  frame[12] = 0x88;
  arrive(frame);  // not IP
  arrive({1, 2, 3});
  arrive({});
  expect_ignored();
}

// Keeps what it is given, and has one frame to send.
class Others final : public OtherFrames {
 public:
  std::vector<FakePort::Bytes> taken;
  FakePort::Bytes to_send;
  void take(std::span<const uint8_t> frame) override { taken.emplace_back(frame.begin(), frame.end()); }
  size_t next(std::span<uint8_t> out) override {
    ++asked;
    EXPECT_GE(out.size(), to_send.size());
    std::copy(to_send.begin(), to_send.end(), out.begin());
    return std::exchange(to_send, {}).size();
  }
  int descriptor() const override { return readable; }
  size_t asked = 0;
  int readable = -1;
  std::vector<bool> links;
  void link(bool up) override {
    if (links.empty() || links.back() != up) links.push_back(up);
  }
};

// To ask is a system call then.
TEST_F(DpdkIoTest, OthersWithADescriptorAreAskedNowAndThen) {
  const auto others = std::make_shared<Others>();
  config_.others = others;
  others->readable = 0;
  restart(config_);
  EXPECT_EQ(io_->wait_descriptors().back().fd, 0);
  others->asked = 0;
  for (int round = 0; round < 640; ++round) {
    receive();
    io_->flush();
  }
  EXPECT_GE(others->asked, 9u);
  EXPECT_LE(others->asked, 20u);
  others->to_send = FakePort::Bytes(60, 0x77);
  io_->prepare_to_wait();
  ASSERT_EQ(port_.sent.size(), 1u) << "or the sleep would end at once";
  EXPECT_EQ(port_.sent[0].second, FakePort::Bytes(60, 0x77));
}

TEST_F(DpdkIoTest, TheLongestFrameOfOthersLeavesAndNoneLonger) {
  const auto others = std::make_shared<Others>();
  config_.others = others;
  config_.mtu = 1500;
  restart(config_);
  others->to_send = FakePort::Bytes(1514, 1);
  io_->flush();
  EXPECT_EQ(port_.sent.size(), 1u);
  others->to_send = FakePort::Bytes(1515, 1);
  io_->flush();
  EXPECT_EQ(port_.sent.size(), 1u);
  EXPECT_EQ(io_->counters().tx_errors, 1u);
}

constexpr uint16_t kVlan = 0x123;
FakePort::Bytes tagged(FakePort::Bytes frame, uint16_t tag) {
  const uint8_t bytes[] = {0x81, 0, static_cast<uint8_t>(tag >> 8), static_cast<uint8_t>(tag)};
  frame.insert(frame.begin() + 12, std::begin(bytes), std::end(bytes));
  return frame;
}

// By the driver if it can, else here.
TEST_F(DpdkIoTest, APortInAVlanHasTagsInItsFrames) {
  for (const bool by_driver : {false, true}) {
    const auto others = std::make_shared<Others>();
    config_.vlan = kVlan;
    config_.others = others;
    io_.reset();
    port_.sent.clear();
    port_.inserted.clear();
    io_.emplace(FakePort::calls(), port_.port(), DpdkPortInfo{.queues = 1, .inserts_vlan = by_driver}, config_);
    TestBurst burst;
    burst.add(envelope_v4(), 1, 100);
    others->to_send = FakePort::Bytes(60, 0x77);
    EXPECT_EQ(io_->send(burst.packets()), 1u);
    EXPECT_TRUE(io_->flush());
    ASSERT_EQ(port_.sent.size(), 2u);
    const std::vector<FakePort::Bytes> bare{a_frame(), FakePort::Bytes(60, 0x77)};
    for (size_t i = 0; i < bare.size(); ++i) {
      EXPECT_EQ(port_.sent[i].second, by_driver ? bare[i] : tagged(bare[i], kVlan)) << i;
      EXPECT_EQ(port_.inserted[i], by_driver ? kVlan : 0);
    }
    arrive(port_.sent[0].second);
    if (by_driver) port_.arriving.back().vlan = kVlan;
    ASSERT_EQ(receive(), 1u);
    burst.expect_arrived(0, received_[0]);
    arrive(tagged(a_frame(), kVlan | 0xe000));
    EXPECT_EQ(receive(), 1u) << "whatever its priority";
  }
}

TEST_F(DpdkIoTest, APortInAVlanTakesNothingOfOthers) {
  const auto others = std::make_shared<Others>();
  config_.vlan = kVlan;
  config_.others = others;
  restart(config_);
  FakePort::Bytes arp(60);
  std::copy(kOwnMac.begin(), kOwnMac.end(), arp.begin());
  arp[12] = 0x08;
  arp[13] = 0x06;
  for (const FakePort::Bytes& frame : {a_frame(), arp}) {
    arrive(frame);
    arrive(tagged(frame, kVlan + 1));
    arrive(tagged(tagged(frame, kVlan), kVlan));  // a VLAN in the VLAN
    port_.arriving.push_back({.segments = {frame}, .vlan = kVlan + 1});
    port_.arriving.push_back({.segments = {tagged(frame, kVlan)}, .vlan = kVlan + 1});
  }
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(others->taken.size(), 2u) << "two of the doubly tagged ones are somebody's";
  others->taken.clear();
  arrive(tagged(arp, kVlan));
  port_.arriving.push_back({.segments = {arp}, .vlan = kVlan});
  arp.resize(4000);
  arrive(tagged(arp, kVlan));
  EXPECT_EQ(receive(), 0u);
  ASSERT_EQ(others->taken.size(), 3u);
  for (const FakePort::Bytes& taken : others->taken) {
    EXPECT_TRUE(std::equal(taken.begin(), taken.end(), arp.begin())) << "without the tag";
  }
  EXPECT_EQ(others->taken.back().size(), arp.size());
  FakePort::Bytes broken = tagged(a_frame(), kVlan);
  broken.resize(80);
  arrive(broken);
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(io_->counters().rx_malformed, 1u);
}

// The other end may not have come yet, or come back at once.
TEST_F(DpdkIoTest, TheLinkIsToldWhenItHasBeenGoneForAWhile) {
  const auto others = std::make_shared<Others>();
  config_.others = others;
  restart(config_);
  port_.link = false;
  const auto pass = [this](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) io_->prepare_to_wait();
  };
  pass(std::chrono::milliseconds(600));
  EXPECT_THAT(others->links, testing::IsEmpty());
  port_.link = true;
  io_->prepare_to_wait();
  port_.link = false;
  io_->prepare_to_wait();
  port_.link = true;
  io_->prepare_to_wait();
  EXPECT_THAT(others->links, testing::ElementsAre(true));
  port_.link = false;
  pass(std::chrono::milliseconds(600));
  EXPECT_THAT(others->links, testing::ElementsAre(true, false));
  port_.link = true;
  for (int look = 0; look < 5000; ++look) receive();  // as a program that polls
  EXPECT_THAT(others->links, testing::ElementsAre(true, false, true));
}

TEST_F(DpdkIoTest, FramesOfGroupsAreTaken) {
  FakePort::Bytes frame = a_frame();
  frame[0] = 0x01;
  arrive(frame);
  EXPECT_EQ(receive(), 1u);
}

TEST_F(DpdkIoTest, ANewMacAddressIsTheOnlyOne) {
  io_->set_mac({2, 0, 0, 0, 0, 9});
  arrive(a_frame());
  expect_ignored();
  FakePort::Bytes frame = a_frame();
  frame[5] = 9;
  arrive(frame);
  EXPECT_EQ(receive(), 1u);
}

TEST_F(DpdkIoTest, OnlyTheLeasedQpNumbersAreTaken) {
  TestBurst burst;
  burst.add(envelope_v4(), 1, 8);
  const FakePort::Bytes frame = frames_of(burst).front();
  const uint32_t qpn = wire::load_be24(frame.data() + 42 + 5);
  config_.qpns = wire::QpnRange{.first = qpn, .count = 1};
  restart(config_);
  arrive(frame);
  EXPECT_EQ(receive(), 1u);
  config_.qpns = wire::QpnRange{.first = qpn + 1, .count = 1};
  restart(config_);
  arrive(frame);
  expect_ignored();
  FakePort::Bytes to_group = frame;
  std::fill_n(to_group.begin() + 42 + 5, 3, uint8_t{0xff});
  arrive(to_group);
  EXPECT_EQ(receive(), 1u);
}

TEST_F(DpdkIoTest, BrokenPacketsAreCountedAndShown) {
  std::vector<wire::FrameError> seen;
  io_->observe_malformed([&](std::span<const uint8_t>, wire::FrameError error) { seen.push_back(error); });
  FakePort::Bytes frame = a_frame();
  frame.resize(frame.size() - 20);
  arrive(frame);
  port_.arriving.push_back({.segments = {a_frame()}, .bad_checksum = true});
  frame = a_frame();
  frame[24] ^= 1;
  arrive(frame);
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(io_->counters().rx_malformed, 3u);
  EXPECT_THAT(seen, testing::ElementsAre(wire::FrameError::kTruncated, wire::FrameError::kBadIpChecksum,
                                         wire::FrameError::kBadIpChecksum));
}

// Every length that a frame can have, and any byte wrong: nothing is read beyond it (the sanitizers look on).
TEST_F(DpdkIoTest, CutAndChangedFramesDoNoHarm) {
  const FakePort::Bytes whole = a_frame(1, 64);
  for (size_t size = 0; size < whole.size(); ++size) {
    arrive({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    receive();
    FakePort::Bytes changed = whole;
    changed[size] ^= 0xff;
    arrive(changed);
    receive();
  }
}

TEST_F(DpdkIoTest, SegmentsThatDisagreeWithTheLengthAreDropped) {
  const FakePort::Bytes frame = a_frame(1, 1000);
  const FakePort::Bytes front(frame.begin(), frame.begin() + 500), back(frame.begin() + 500, frame.end());
  port_.arriving.push_back({.segments = {front, back}, .lies_by = 4});
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(io_->counters().ring_errors, 1u);
  port_.arriving.push_back({.segments = {front, FakePort::Bytes(DpdkIo::kMaxFrameSize)}});
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(io_->counters().rx_too_long, 1u);
  port_.arriving.push_back({.segments = {front, back}});
  EXPECT_EQ(receive(), 1u);
  port_.contradicts = true;  // what the module makes of an mbuf that lies outside of its buffer
  arrive(frame);
  EXPECT_EQ(receive(), 0u);
  EXPECT_EQ(io_->counters().ring_errors, 2u);
}

TEST_F(DpdkIoTest, WhatTheDriverDoesNotTakeWaitsInOrder) {
  TestBurst burst;
  for (uint32_t psn = 0; psn < 200; ++psn) burst.add(envelope_v4(), psn, 16);
  port_.takes = 0;
  const size_t taken = io_->send(burst.packets());
  EXPECT_EQ(taken, DpdkIo::kMaxBurst);
  EXPECT_FALSE(io_->flush());
  EXPECT_EQ(io_->counters().tx_backpressure, 1u);
  port_.takes = 5;
  EXPECT_FALSE(io_->flush());
  port_.takes = SIZE_MAX;
  EXPECT_TRUE(io_->flush());
  EXPECT_EQ(io_->send(burst.packets().subspan(taken)), burst.size() - taken);
  EXPECT_TRUE(io_->flush());
  ASSERT_EQ(port_.sent.size(), burst.size());
  for (auto& [queue, frame] : port_.sent) arrive(std::move(frame));
  for (size_t done = 0; done < burst.size();) {
    const size_t count = receive();
    ASSERT_GT(count, 0u);
    for (size_t i = 0; i < count; ++i) burst.expect_arrived(done++, received_[i]);
  }
}

TEST_F(DpdkIoTest, WithoutLinkPacketsAreLostAndNobodyWaits) {
  TestBurst burst;
  for (uint32_t psn = 0; psn < 10; ++psn) burst.add(envelope_v4(), psn, 16);
  port_.takes = 0;
  port_.link = false;
  EXPECT_EQ(io_->send(burst.packets()), burst.size());
  EXPECT_TRUE(io_->flush());
  EXPECT_EQ(io_->counters().tx_errors, burst.size());
}

TEST_F(DpdkIoTest, AReaderThatWasStoppedIsNotWaitedForLong) {
  TestBurst burst;
  for (uint32_t psn = 0; psn < 10; ++psn) burst.add(envelope_v4(), psn, 16);
  port_.takes = 0;
  EXPECT_EQ(io_->send(burst.packets()), burst.size());
  EXPECT_FALSE(io_->flush());
  EXPECT_TRUE(eventually([&] { return io_->flush(); }));
  EXPECT_EQ(io_->counters().tx_errors, burst.size());
}

TEST_F(DpdkIoTest, WithoutBuffersThereIsBackpressure) {
  TestBurst burst;
  burst.add(envelope_v4(), 1, 16);
  port_.buffers = 0;
  EXPECT_EQ(io_->send(burst.packets()), 0u);
  port_.buffers = 1024;
  EXPECT_EQ(io_->send(burst.packets()), 1u);
}

TEST_F(DpdkIoTest, CountersOfThePortAreAdded) {
  port_.counters = {.rx_no_buffer = 3, .tx_errors = 4};
  EXPECT_EQ(io_->counters().rx_no_buffer, 3u);
  EXPECT_EQ(io_->counters().tx_errors, 4u);
}

// Without interrupts a timer ends each sleep, sooner after packets.
TEST_F(DpdkIoTest, SleepsAreShort) {
  ASSERT_EQ(io_->wait_descriptors().size(), 1u);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(io_->prepare_to_wait());
    pollfd descriptor = io_->wait_descriptors().front();
    EXPECT_EQ(poll(&descriptor, 1, 20000), 1);
  }
  arrive(a_frame());
  EXPECT_FALSE(io_->prepare_to_wait());
}

class DpdkIoQueues : public DpdkIoTest {
 protected:
  DpdkIoQueues() : DpdkIoTest(4) {}
};

TEST_F(DpdkIoQueues, AFlowStaysInOneQueue) {
  TestBurst burst;
  for (uint16_t port = 0xc000; port < 0xc008; ++port) {
    wire::Envelope envelope = envelope_v4();
    envelope.source_port = port;
    burst.add(envelope, port, 16);
  }
  EXPECT_EQ(io_->send(burst.packets()), burst.size());
  EXPECT_TRUE(io_->flush());
  ASSERT_EQ(port_.sent.size(), burst.size());
  for (const auto& [queue, frame] : port_.sent) EXPECT_EQ(queue, wire::load_be16(frame.data() + 34) % 4u);
  EXPECT_THAT(io_->description(), testing::HasSubstr("4 queues"));
}

}  // namespace
}  // namespace uroce::io::test

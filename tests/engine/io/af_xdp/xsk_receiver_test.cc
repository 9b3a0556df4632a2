// SPDX-License-Identifier: BSD-2-Clause
// What XskReceiver makes of the descriptors of RX rings: right ones, wrong ones, and frames of strangers. The area has
// exactly its size, so that AddressSanitizer sees every byte that is read outside.
#include "engine/io/af_xdp/xsk_receiver.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <vector>

#include "tests/engine/io/af_xdp/fake_xsk_queue.h"
#include "tests/engine/io/test_packet.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

constexpr uint32_t kChunk = 4096;
constexpr size_t kPiece = kChunk - 256;  // behind the kernel's headroom
constexpr uint32_t kChunks = 128;        // per queue
constexpr size_t kHeaders = wire::kEthernetSize + wire::kIpv4Size + wire::kUdpSize;

using Bytes = std::vector<uint8_t>;

// A frame to port 4791 that carries `size` bytes, all `filling`.
Bytes frame_of(size_t size, uint8_t filling) {
  Bytes frame(kHeaders + size, filling);
  wire::emit_frame_headers(envelope_v4(), static_cast<uint32_t>(wire::kUdpSize + size), frame.data());
  return frame;
}

// The same with a UDP length field that IP does not agree with: no packet, and nobody needs a QP to send it.
Bytes malformed_frame_of(size_t size, uint8_t filling) {
  Bytes frame = frame_of(size, filling);
  ++frame[wire::kEthernetSize + wire::kIpv4Size + 5];
  return frame;
}

class XskReceiverTest : public testing::Test {
 protected:
  void make_queues(uint32_t count, bool multi_buffer = true) {
    area_ = Bytes(size_t{count} * kChunks * kChunk);
    receiver_ = XskReceiver(area_, multi_buffer);
    for (uint32_t i = 0; i < count; ++i) {
      queues_.push_back(std::make_unique<FakeXskQueue>(uint64_t{i} * kChunks * kChunk, kChunks, kChunk));
    }
  }
  bool arrive(size_t queue, const Bytes& frame) { return queues_[queue]->arrive(area_, frame, kPiece); }
  void descriptor(size_t queue, xdp_desc descriptor) { queues_[queue]->xsk.rx.push_back(descriptor); }
  // What the kernel does when it takes a chunk from the FILL ring.
  uint64_t take_chunk(size_t queue) {
    const uint64_t address = queues_[queue]->xsk.filled.front();
    queues_[queue]->xsk.filled.pop_front();
    return address;
  }

  // Everything that is in the rings. The kernel writes into all chunks that it has while somebody looks at a packet.
  std::vector<Bytes> receive_all(size_t burst = XskReceiver::kMaxBurst) {
    std::vector<Bytes> frames;
    std::vector<RxPacket> out(burst);
    bool more = true;
    while (more) {
      for (RxPacket& place : out) place.without_icrc = true;  // as others have left it
      const size_t count = receiver_.receive(queues_, out);
      EXPECT_LE(count, out.size());
      for (const auto& queue : queues_) {
        for (const uint64_t address : queue->xsk.filled) std::fill_n(&area_[address], kChunk, uint8_t{0xee});
      }
      for (const RxPacket& packet : std::span(out).first(count)) {
        frames.emplace_back(packet.frame.begin(), packet.frame.end());
        EXPECT_EQ(packet.ib.data(), packet.frame.data() + kHeaders);
        EXPECT_FALSE(packet.without_icrc);
      }
      more = std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue->xsk.rx.empty(); });
    }
    return frames;
  }
  // Each chunk but `lost` is in the FILL ring of its queue, once.
  void expect_all_chunks_back(size_t lost = 0) {
    receive_all();
    size_t there = 0;
    for (const auto& queue : queues_) {
      const std::set<uint64_t> chunks(queue->xsk.filled.begin(), queue->xsk.filled.end());
      EXPECT_EQ(chunks.size(), queue->xsk.filled.size()) << "a chunk was given back twice";
      there += chunks.size();
    }
    EXPECT_EQ(there + lost, queues_.size() * kChunks);
  }
  const IoCounters& counters() const { return receiver_.counters(); }

  Bytes area_;
  XskReceiver receiver_;
  std::vector<std::unique_ptr<FakeXskQueue>> queues_;
};

TEST_F(XskReceiverTest, FramesOfEveryNumberOfChunksArriveExactly) {
  make_queues(1);
  std::vector<Bytes> sent;
  for (const size_t size : {size_t{0}, size_t{1}, kPiece - kHeaders, kPiece - kHeaders + 1, 2 * kPiece - kHeaders,
                            2 * kPiece - kHeaders + 1, XskReceiver::kMaxFrameSize - kHeaders}) {
    sent.push_back(frame_of(size, static_cast<uint8_t>(1 + sent.size())));
    ASSERT_TRUE(arrive(0, sent.back()));
  }
  EXPECT_EQ(receive_all(), sent);
  EXPECT_EQ(counters().rx_packets, sent.size());
  expect_all_chunks_back();
}

// However many queues there are: large frames that are no packets take no memory of others.
TEST_F(XskReceiverTest, MalformedLargeFramesOnManyQueues) {
  make_queues(16);
  const Bytes malformed = malformed_frame_of(5000, 0xbb);
  std::vector<Bytes> sent;
  size_t rejected = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t queue = 0; queue < queues_.size(); ++queue) {
      while (arrive(queue, malformed)) ++rejected;
    }
    std::array<RxPacket, XskReceiver::kMaxBurst> out;
    EXPECT_EQ(receiver_.receive(queues_, out), 0u);
    EXPECT_TRUE(receive_all().empty());
    for (size_t i = 0; i < XskReceiver::kMaxBurst; ++i) {  // packets among them are unharmed
      ASSERT_TRUE(arrive(i % 16, malformed));
      ++rejected;
      sent.push_back(frame_of(4096, static_cast<uint8_t>(i)));
      ASSERT_TRUE(arrive(i % 16, sent.back()));
    }
    std::vector<Bytes> received = receive_all();
    std::sort(received.begin(), received.end());
    std::sort(sent.begin(), sent.end());
    EXPECT_EQ(received, sent);
    sent.clear();
  }
  EXPECT_EQ(counters().rx_malformed, rejected);
  expect_all_chunks_back();
}

TEST_F(XskReceiverTest, ABurstOfLargePacketsFillsAllSlots) {
  make_queues(4);
  std::vector<Bytes> sent;
  for (size_t i = 0; i < 32 * queues_.size(); ++i) {
    sent.push_back(frame_of(5000, static_cast<uint8_t>(i)));
    ASSERT_TRUE(arrive(i / 32, sent.back()));
  }
  std::array<RxPacket, 2 * XskReceiver::kMaxBurst> out;  // more than one call gives
  size_t arrived = 0;
  while (arrived < sent.size()) {
    const size_t count = receiver_.receive(queues_, out);
    ASSERT_TRUE(count > 0 && count <= XskReceiver::kMaxBurst);
    arrived += count;
    std::set<const uint8_t*> places;
    for (const RxPacket& packet : std::span(out).first(count)) {
      places.insert(packet.frame.data());
      EXPECT_EQ(Bytes(packet.frame.begin(), packet.frame.end()), frame_of(5000, packet.ib[0]));
    }
    EXPECT_EQ(places.size(), count);
  }
  expect_all_chunks_back();
}

TEST_F(XskReceiverTest, FramesThatAreTooLargeAreDroppedAndCounted) {
  make_queues(2);
  ASSERT_TRUE(arrive(0, frame_of(XskReceiver::kMaxFrameSize - kHeaders + 1, 1)));  // of three chunks
  ASSERT_TRUE(arrive(0, frame_of(20 * kPiece, 2)));
  for (int i = 0; i < 100; ++i) descriptor(1, {take_chunk(1), 1, XDP_PKT_CONTD});  // that does not end
  ASSERT_TRUE(arrive(1, frame_of(1, 3)));                                          // and takes the next one along
  ASSERT_TRUE(arrive(0, frame_of(5000, 4)));
  ASSERT_TRUE(arrive(1, frame_of(5000, 5)));
  EXPECT_EQ(receive_all(), (std::vector<Bytes>{frame_of(5000, 4), frame_of(5000, 5)}));
  EXPECT_EQ(counters().rx_too_long, 2u);
  EXPECT_EQ(counters().rx_malformed, 1u);
  EXPECT_EQ(counters().ring_errors, 0u);
  expect_all_chunks_back();
}

// A frame that is not complete yet keeps its bytes over any number of calls.
TEST_F(XskReceiverTest, AFrameMayTakeSeveralCalls) {
  make_queues(2);
  const Bytes frame = frame_of(7000, 0x77);
  ASSERT_TRUE(arrive(0, frame));
  const xdp_desc last = queues_[0]->xsk.rx.back();
  queues_[0]->xsk.rx.pop_back();
  for (uint8_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(arrive(1, frame_of(5000, i)));
    EXPECT_EQ(receive_all(), std::vector<Bytes>{frame_of(5000, i)});
  }
  descriptor(0, last);
  EXPECT_EQ(receive_all(), std::vector<Bytes>{frame});
  expect_all_chunks_back();
}

TEST_F(XskReceiverTest, ChunksWithoutMultiBufferMakeNoFrame) {
  make_queues(1, false);
  ASSERT_TRUE(arrive(0, frame_of(5000, 1)));
  ASSERT_TRUE(arrive(0, frame_of(100, 2)));
  EXPECT_EQ(receive_all(), std::vector<Bytes>{frame_of(100, 2)});
  EXPECT_EQ(counters().rx_malformed, 1u);
  expect_all_chunks_back();
}

// Descriptors that the kernel would have to be broken for: nothing outside the queue's chunks is looked at, and no
// chunk is given back twice.
TEST_F(XskReceiverTest, DescriptorsThatCannotBeTrueAreCountedAndNotBelieved) {
  make_queues(2);
  const uint64_t end = area_.size();
  const uint64_t mine = take_chunk(0);
  xdp_desc wrong[] = {
      {end, 64, 0},                  // behind the area
      {UINT64_MAX, 64, 0},           // its end wraps
      {UINT64_MAX - kChunk, 64, 0},  // in front of the first chunk
      {end - 1, UINT32_MAX, 0},      // of the other queue
      {mine, kChunk + 1, 0},         // longer than its chunk
  };
  uint64_t count = 0;
  for (const xdp_desc& alone : wrong) {
    descriptor(0, alone);
    ASSERT_TRUE(arrive(0, frame_of(16, 1)));
    EXPECT_EQ(receive_all(), std::vector<Bytes>{frame_of(16, 1)});
    EXPECT_EQ(counters().ring_errors, ++count);
  }
  EXPECT_EQ(counters().rx_malformed, count);
  // The same chunk twice.
  ASSERT_TRUE(arrive(0, frame_of(16, 1)));
  descriptor(0, queues_[0]->xsk.rx.back());
  EXPECT_EQ(receive_all(), std::vector<Bytes>{frame_of(16, 1)});
  EXPECT_EQ(counters().ring_errors, ++count);
  // Inside a frame they take the frame along.
  std::end(wrong)[-1].addr = take_chunk(0);
  for (xdp_desc part : wrong) {
    part.options = XDP_PKT_CONTD;
    descriptor(0, part);
    ASSERT_TRUE(arrive(0, frame_of(5000, 2)));
    EXPECT_TRUE(receive_all().empty());
    ASSERT_TRUE(arrive(0, frame_of(5000, 3)));
    EXPECT_EQ(receive_all(), std::vector<Bytes>{frame_of(5000, 3)});
    ++count;
  }
  EXPECT_EQ(counters().ring_errors, count);
  expect_all_chunks_back();
}

// The kernel says late what it took out of the FILL ring.
TEST_F(XskReceiverTest, ChunksWaitForRoomInTheFillRing) {
  make_queues(1);
  queues_[0]->xsk.fill_size = 0;
  ASSERT_TRUE(arrive(0, frame_of(16, 1)));
  EXPECT_EQ(receive_all().size(), 1u);
  receive_all();
  EXPECT_EQ(queues_[0]->xsk.filled.size(), kChunks - 1u);
  queues_[0]->xsk.fill_size = 2 * kChunks;
  expect_all_chunks_back();
}

}  // namespace
}  // namespace uroce::io::test

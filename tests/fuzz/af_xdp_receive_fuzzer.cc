// SPDX-License-Identifier: BSD-2-Clause
// AF_XDP receive over rings of our own: frames of every size and shape on several queues, in chunks that arrive over
// several calls. The kernel is an honest one, and then every frame that is a packet has to come out exactly, in order,
// and every chunk go back once; or a broken one that writes any descriptors, and then nothing outside the area may be
// touched.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/io/af_xdp/xsk_receiver.h"
#include "tests/engine/io/af_xdp/fake_xsk_queue.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/ip_udp.h"

using namespace uroce;
using fuzz::check;

namespace {

constexpr uint32_t kMaxQueues = 8;
constexpr uint32_t kChunks = 96;  // per queue
constexpr uint32_t kChunk = 4096;
constexpr uint32_t kMaxHeadroom = 256;
constexpr int kOperations = 200;
constexpr size_t kLargestFrame = 12000;

using Bytes = std::vector<uint8_t>;

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size),
        honest_(input_.flag()),
        multi_buffer_(input_.byte() % 8 != 0),
        area_(static_area()),
        receiver_(area_, multi_buffer_),
        queue_count_(1 + input_.below(kMaxQueues)) {
    // At the end of the area, so that what is behind it is seen.
    for (uint32_t i = kMaxQueues - queue_count_; i < kMaxQueues; ++i) {
      queues_.push_back(std::make_unique<io::test::FakeXskQueue>(uint64_t{i} * kChunks * kChunk, kChunks, kChunk));
    }
    receiver_.observe_malformed([](std::span<const uint8_t> frame, wire::FrameError) { touch(frame); });
  }

  void run() {
    for (int i = 0; i < kOperations && !input_.empty(); ++i) {
      switch (input_.below(4)) {
        case 0:
        case 1:
          frames_arrive();
          break;
        case 2:
          if (!honest_) descriptor_arrives();
          break;
        case 3:
          receive();
          break;
      }
    }
    while (std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue->xsk.rx.empty(); })) {
      receive();
    }
    receive();  // what the last call took goes back
    if (honest_) expect_all_done();
  }

 private:
  static std::span<uint8_t> static_area() {
    static Bytes area(size_t{kMaxQueues} * kChunks * kChunk);
    return area;
  }
  static void touch(std::span<const uint8_t> bytes) {
    static Bytes copy(kChunk * io::XskReceiver::Source::kMaxChunks);
    check(bytes.size() <= copy.size(), "no frame is larger than its chunks");
    std::copy(bytes.begin(), bytes.end(), copy.begin());
  }

  // Some equal frames. A byte of the headers may be changed, and the length is any.
  void frames_arrive() {
    const size_t queue = input_.below(queue_count_);
    const int count = 1 + input_.byte() % 40;
    const auto made = std::make_shared<Bytes>(input_.word() % kLargestFrame, ++filling_);
    Bytes& frame = *made;
    wire::Envelope envelope;
    if (input_.flag()) envelope.source = envelope.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{}.data());
    const size_t headers = wire::frame_header_size(envelope);
    const uint8_t place = input_.byte(), change = input_.byte();
    if (frame.size() >= headers) {
      wire::emit_frame_headers(envelope, static_cast<uint32_t>(frame.size() - headers + wire::kUdpSize), frame.data());
      if (place < headers) frame[place] ^= change;
    }
    const size_t piece = input_.flag() ? kChunk - kMaxHeadroom : 1 + input_.word() % (kChunk - kMaxHeadroom);
    const uint32_t headroom = input_.flag() ? kMaxHeadroom : input_.below(kMaxHeadroom + 1);
    for (int i = 0; i < count && queues_[queue]->arrive(area_, frame, piece, headroom); ++i) expect(queue, made, piece);
  }

  void expect(size_t queue, const std::shared_ptr<const Bytes>& made, size_t piece) {
    const Bytes& frame = *made;
    const size_t chunks = std::max<size_t>(1, (frame.size() + piece - 1) / piece);
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    const bool one_piece = chunks == 1 || (multi_buffer_ && chunks <= io::XskReceiver::Source::kMaxChunks &&
                                           frame.size() <= io::XskReceiver::kMaxFrameSize);
    if (one_piece && wire::parse_frame(frame, envelope, ib) == wire::FrameError::kNone) {
      expected_[queue].push_back(made);
    } else {
      ++malformed_;
    }
  }

  void descriptor_arrives() {
    auto& rings = queues_[input_.below(queue_count_)]->xsk;
    const uint64_t bases[] = {0, area_.size(), UINT64_MAX - 4096, rings.filled.empty() ? 0 : rings.filled.front(),
                              rings.rx.empty() ? 0 : rings.rx.back().addr};
    const uint64_t address = input_.one_of(bases) + input_.word();
    const uint32_t sizes[] = {0, 64, kChunk, kChunk + 1, UINT32_MAX, 3 * kChunk};
    rings.rx.push_back({address, input_.one_of(sizes), input_.dword()});
  }

  void receive() {
    // Of some queues the kernel has not shown everything yet: a frame may end in a later call.
    std::array<std::deque<xdp_desc>, kMaxQueues> hidden;
    for (size_t i = 0; i < queue_count_; ++i) {
      auto& rx = queues_[i]->xsk.rx;
      const auto shown = static_cast<ptrdiff_t>(rx.size() - std::min<size_t>(rx.size(), input_.below(4)));
      hidden[i].assign(rx.begin() + shown, rx.end());
      rx.erase(rx.begin() + shown, rx.end());
    }
    std::vector<io::RxPacket> out(1 + input_.byte() % 100);
    const size_t count = receiver_.receive(queues_, out);
    check(count <= out.size(), "as many packets as there is room for");
    for (size_t i = 0; i < queue_count_; ++i) {
      // What the kernel has it may write into.
      for (const uint64_t address : queues_[i]->xsk.filled) std::memset(&area_[address], 0xee, 2 * kMaxHeadroom);
      queues_[i]->xsk.rx.insert(queues_[i]->xsk.rx.end(), hidden[i].begin(), hidden[i].end());
    }
    for (const io::RxPacket& packet : std::span(out).first(count)) {
      touch(packet.frame);
      check(packet.ib.data() >= packet.frame.data() &&
                packet.ib.data() + packet.ib.size() <= packet.frame.data() + packet.frame.size(),
            "the packet lies inside its frame");
      if (honest_) check(is_expected(packet.frame), "a frame arrives as it was, in the order of its queue");
    }
  }

  bool is_expected(std::span<const uint8_t> frame) {
    for (size_t i = 0; i < queue_count_; ++i) {
      if (expected_[i].empty()) continue;
      const Bytes& next = *expected_[i].front();
      if (!std::equal(frame.begin(), frame.end(), next.begin(), next.end())) continue;
      expected_[i].pop_front();
      return true;
    }
    return false;
  }

  void expect_all_done() {
    for (size_t i = 0; i < queue_count_; ++i) {
      check(expected_[i].empty(), "every packet arrives");
      const auto& filled = queues_[i]->xsk.filled;
      check(filled.size() == kChunks && std::set<uint64_t>(filled.begin(), filled.end()).size() == kChunks,
            "every chunk goes back once");
    }
    check(receiver_.counters().rx_malformed + receiver_.counters().rx_too_long == malformed_,
          "every frame that is no packet is counted");
    check(receiver_.counters().ring_errors == 0, "an honest kernel's descriptors are believed");
  }

  fuzz::Input input_;
  const bool honest_;
  const bool multi_buffer_;
  const std::span<uint8_t> area_;
  io::XskReceiver receiver_;
  const uint32_t queue_count_;
  std::vector<std::unique_ptr<io::test::FakeXskQueue>> queues_;
  std::array<std::deque<std::shared_ptr<const Bytes>>, kMaxQueues> expected_;
  uint64_t malformed_ = 0;
  uint8_t filling_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(data, size).run();
  return 0;
}

// SPDX-License-Identifier: BSD-2-Clause
// Receiving from a DPDK port, with mbufs as drivers hand them out: frames of every size, in chains of segments, with
// and without VLAN tags. The driver is an honest one, and then every frame that is a packet has to come out exactly; or
// one that passes on lengths of a broken device or a hostile process (net_memif), and then nothing outside the buffers
// may be touched (they lie on the heap, for AddressSanitizer).
//
// Checked besides: packets lie in their frames, and each mbuf goes back once.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/io/dpdk/dpdk.h"
#include "engine/io/dpdk/module/frames.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

using namespace uroce;
using fuzz::check;

namespace {

constexpr int kOperations = 60;
constexpr uint32_t kLargestFrame = 9000;
constexpr wire::MacAddress kOwnMac = {2, 0, 0, 0, 0, 2};
constexpr uint16_t kVlan = 0x123;

using Bytes = std::vector<uint8_t>;

// A frame in mbufs, each with a buffer of its own.
struct Chain {
  std::vector<std::unique_ptr<rte_mbuf>> mbufs;
  std::vector<Bytes> buffers;

  void add(std::span<const uint8_t> bytes, size_t headroom) {
    Bytes buffer(headroom + bytes.size());
    buffer.reserve(1);  // there is always a buffer
    std::copy(bytes.begin(), bytes.end(), buffer.begin() + static_cast<ptrdiff_t>(headroom));
    auto mbuf = std::make_unique<rte_mbuf>();
    std::memset(static_cast<void*>(mbuf.get()), 0, sizeof(rte_mbuf));
    mbuf->buf_addr = buffer.data();
    mbuf->buf_len = static_cast<uint16_t>(buffer.size());
    mbuf->data_off = static_cast<uint16_t>(headroom);
    mbuf->data_len = static_cast<uint16_t>(bytes.size());
    mbuf->pkt_len = mbuf->data_len;
    mbuf->nb_segs = 1;
    if (!mbufs.empty()) {
      mbufs.back()->next = mbuf.get();
      ++mbufs.front()->nb_segs;
      mbufs.front()->pkt_len += mbuf->data_len;
    }
    mbufs.push_back(std::move(mbuf));
    buffers.push_back(std::move(buffer));
  }
};

// The driver.
struct Port {
  std::deque<Chain> arriving;
  std::map<const void*, Chain> in_hand;

  static Port& of(io::DpdkPort* port) { return *reinterpret_cast<Port*>(port); }
  io::DpdkPort* handle() { return reinterpret_cast<io::DpdkPort*>(this); }

  static size_t receive(io::DpdkPort* port, io::DpdkBuffer* frames, size_t count) {
    Port& self = of(port);
    size_t n = 0;
    for (; n < count && !self.arriving.empty(); ++n) {
      rte_mbuf* const first = self.arriving.front().mbufs.front().get();
      frames[n] = io::dpdk::describe(first);
      self.in_hand.emplace(first, std::move(self.arriving.front()));
      self.arriving.pop_front();
    }
    return n;
  }
  static size_t gather(const io::DpdkBuffer* frame, uint8_t* out, size_t room) {
    return io::dpdk::gather_segments(*frame, out, room);
  }
  static const io::DpdkCalls& calls() {
    static Port* last = nullptr;  // release() is not told the port
    static const io::DpdkCalls all{
        .interface = "",
        .version = nullptr,
        .open = nullptr,
        .close = [](io::DpdkPort*) {},
        .receive =
            [](io::DpdkPort* port, io::DpdkBuffer* frames, size_t count) {
              last = &of(port);
              return receive(port, frames, count);
            },
        .release =
            [](const io::DpdkBuffer* frames, size_t count) {
              for (size_t i = 0; i < count; ++i) {
                check(last->in_hand.erase(frames[i].handle) == 1, "each mbuf goes back once");
              }
            },
        .gather = gather,
        .reserve = [](io::DpdkPort*, io::DpdkBuffer*, size_t) { return size_t{0}; },
        .send = [](io::DpdkPort*, uint32_t, const io::DpdkBuffer*, size_t) { return size_t{0}; },
        .link_up = [](io::DpdkPort*) { return true; },
        .arm = [](io::DpdkPort*) { return true; },
        .counters = [](io::DpdkPort*, io::DpdkPortCounters* out) { *out = {}; }};
    return all;
  }
};

// Whatever it is given it reads.
class Others final : public io::OtherFrames {
 public:
  uint32_t sum = 0;
  void take(std::span<const uint8_t> frame) override {
    for (const uint8_t byte : frame) sum += byte;
  }
  size_t next(std::span<uint8_t>) override { return 0; }
  void link(bool) override {}
};

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size), honest_(input_.flag()), vlan_(input_.flag() ? kVlan : uint16_t{0}) {
    io::DpdkConfig config;
    config.mtu = kLargestFrame;
    config.mac = kOwnMac;
    config.vlan = vlan_;
    config.others = others_;
    io_ = std::make_unique<io::DpdkIo>(Port::calls(), port_.handle(), io::DpdkPortInfo{.queues = 1}, config);
    io_->observe_malformed([this](std::span<const uint8_t> frame, wire::FrameError) { others_->take(frame); });
  }

  void run() {
    for (int i = 0; i < kOperations && !input_.empty(); ++i) {
      if (input_.below(3) == 2) {
        receive();
      } else {
        frame_arrives();
      }
    }
    while (!port_.arriving.empty()) receive();
    receive();  // what the last call took goes back
    check(port_.in_hand.empty(), "every mbuf goes back");
    if (!honest_) return;
    check(expected_.empty(), "every packet arrives");
    check(io_->counters().ring_errors == too_many_segments_, "an honest driver is believed");
  }

 private:
  void frame_arrives() {
    Bytes frame(input_.below(4) == 3 ? input_.below(kLargestFrame) : input_.below(300));
    std::fill(frame.begin(), frame.end(), ++filling_);
    wire::Envelope envelope;
    envelope.destination_mac = kOwnMac;
    if (input_.flag()) envelope.source = envelope.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{}.data());
    const size_t headers = wire::frame_header_size(envelope);
    const uint8_t place = input_.byte(), change = input_.byte();
    if (frame.size() >= headers) {
      wire::emit_frame_headers(envelope, static_cast<uint32_t>(frame.size() - headers + wire::kUdpSize), frame.data());
      if (place < headers) frame[place] ^= change;
    }
    const uint16_t tag = input_.flag() ? vlan_ : input_.word();
    const bool by_driver = input_.flag(), in_frame = input_.flag();
    if (in_frame && frame.size() >= 12) {
      const uint8_t bytes[] = {0x81, 0, static_cast<uint8_t>(tag >> 8), static_cast<uint8_t>(tag)};
      frame.insert(frame.begin() + 12, std::begin(bytes), std::end(bytes));
    }
    const size_t piece = input_.flag() ? kLargestFrame + 4 : 1 + input_.below(3000);
    Chain chain;
    for (size_t at = 0; at == 0 || at < frame.size(); at += piece) {
      chain.add(std::span(frame).subspan(at, std::min(piece, frame.size() - at)), input_.below(200));
    }
    if (by_driver) {
      chain.mbufs.front()->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
      chain.mbufs.front()->vlan_tci = tag;
    }
    if (honest_) {
      expect(frame, by_driver ? tag & 0xfff : 0, chain.mbufs.size());
    } else {
      lie(*chain.mbufs[input_.below(static_cast<uint32_t>(chain.mbufs.size()))]);
      if (input_.flag()) lie(*chain.mbufs.front());
      if (input_.below(8) == 7) chain.mbufs.back()->next = chain.mbufs.front().get();  // for ever
    }
    port_.arriving.push_back(std::move(chain));
  }

  void lie(rte_mbuf& mbuf) {
    switch (input_.below(5)) {
      case 0:
        mbuf.data_len = input_.word();
        break;
      case 1:
        mbuf.data_off = input_.word();
        break;
      case 2:
        mbuf.nb_segs = input_.flag() ? input_.word() : input_.byte();
        break;
      case 3:
        mbuf.pkt_len = input_.flag() ? input_.dword() : input_.word();
        break;
      default:
        mbuf.next = nullptr;
        break;
    }
  }

  // As the io's own rules have it, without its code.
  void expect(const Bytes& frame, uint16_t taken_out, size_t segments) {
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    if (segments > io::dpdk::kMostSegments) {
      ++too_many_segments_;
      return;
    }
    if (frame.size() < 14) return;
    if (segments > 1 && frame.size() > io::DpdkIo::kMaxFrameSize) return;
    const bool tagged = wire::load_be16(frame.data() + 12) == 0x8100;
    const bool own_vlan = vlan_ == 0 ? !tagged && taken_out == 0
                          : tagged   ? taken_out == 0 && (wire::load_be16(frame.data() + 14) & 0xfff) == vlan_
                                     : taken_out == vlan_;
    const bool own = (frame[0] & 1) != 0 || std::equal(kOwnMac.begin(), kOwnMac.end(), frame.begin());
    const bool echo = std::equal(kOwnMac.begin(), kOwnMac.end(), frame.begin() + 6);
    if (!own_vlan || !own || echo || wire::parse_frame(frame, envelope, ib) != wire::FrameError::kNone) return;
    expected_.push_back(frame);
  }

  void receive() {
    std::array<io::RxPacket, io::DpdkIo::kMaxBurst> out;
    const size_t count = io_->receive(std::span(out).first(1 + input_.below(out.size())));
    for (const io::RxPacket& packet : std::span(out).first(count)) {
      others_->take(packet.frame);
      check(packet.ib.data() >= packet.frame.data() &&
                packet.ib.data() + packet.ib.size() <= packet.frame.data() + packet.frame.size(),
            "the packet lies inside its frame");
      if (!honest_) continue;
      check(!expected_.empty() && std::ranges::equal(packet.frame, expected_.front()), "a packet arrives as it was");
      expected_.pop_front();
    }
  }

  fuzz::Input input_;
  const bool honest_;
  const uint16_t vlan_;
  const std::shared_ptr<Others> others_ = std::make_shared<Others>();
  Port port_;
  std::unique_ptr<io::DpdkIo> io_;
  std::deque<Bytes> expected_;
  uint64_t too_many_segments_ = 0;
  uint8_t filling_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(data, size).run();
  return 0;
}

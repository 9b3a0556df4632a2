// SPDX-License-Identifier: BSD-2-Clause
// Packets on their way from QPs to one PacketIo: collected in bursts, kept over backpressure.
//
// A burst costs a system call or two. A post alone is worth them: its packets leave at once. A thread that goes on
// posting without a poll has filled the pipe, and from its fifth post on packets wait for company: until there are 16
// of them (half a run, where the packet I/O sends runs), for the next poll, or for the background thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "engine/io/packet_io.h"
#include "engine/io/tx_packet.h"
#include "wire/ip_udp.h"

namespace uroce::engine {

class TxBurst {
 public:
  static constexpr size_t kRun = 64;  // the longest
  static constexpr size_t kSize = 2 * kRun;
  static constexpr size_t kUsualBurst = 32;  // what the kernel takes per call in AF_XDP's copy mode
  static constexpr int kPostsAtOnce = 4;     // since the last flush(): posts whose packets do not wait

  // `on_done` is told, in order, of packets whose payload the application took away (`unreadable`), and of those that
  // their QP wants to hear of (`completes`) once their bytes have been made.
  using Done = std::function<void(const io::TxPacket&)>;

  TxBurst(io::PacketIo& io, Done on_done)
      : io_(io),
        on_done_(std::move(on_done)),
        burst_(io.run(wire::kUdpSize) > 1 ? kSize : kUsualBurst),
        company_(burst_ == kSize ? kRun / 2 : kUsualBurst / 2) {}

  // Room for one more packet; sends what is there to make room. Null under backpressure: stop pulling. What is pulled
  // no NAK reaches any more, so that is never more than the PacketIo is known to take.
  io::TxPacket* next() {
    if (count_ == limit_ && !make_room()) return nullptr;
    packets_[count_].unreadable = false;
    return &packets_[count_];
  }
  // The same for several in a row, `most` at most. Who fills them sets `unreadable`, too.
  std::span<io::TxPacket> next(size_t most) {
    if (count_ == limit_ && !make_room()) return {};
    return std::span(packets_).subspan(count_, std::min(most, limit_ - count_));
  }
  void commit(size_t packets = 1) { count_ += packets; }
  // A run follows, which shall not be parted.
  void begin_run() {
    if (!refused_ && count_ + kRun > kSize) submit();
  }

  // The run is complete. With half a burst of packets more are not waited for: they are on their way while others are
  // made. False as submit().
  bool end_run() { return count_ < kRun / 2 || (!refused_ && submit()); }

  // Hands everything to the PacketIo. False: it did not take all; the rest is offered again next time.
  bool submit() {
    offer();
    return settle();
  }

  // Everything leaves, if the packet I/O has room, with the kernel's kick; what it puts off is kicked again next time.
  void flush() {
    posts_at_once_ = kPostsAtOnce;
    if (waiting()) leave();
  }
  // The same after a post, unless it is better to wait.
  void flush_post() {
    if (!waiting()) return;
    if (posts_at_once_ > 0) {
      --posts_at_once_;
    } else if (count_ < company_ && !dirty_) {
      return;
    }
    leave();
  }

  // For room in the packet I/O, for a kick, or for company.
  bool waiting() const { return count_ > 0 || dirty_; }
  // For room or for a kick.
  bool backpressured() const { return backpressured_ && waiting(); }
  // Memory that the waiting packets for which `gone(packet)` holds point to is about to go away: they are lost, as on a
  // wire. The others keep their order. Lost they are also where memory runs out; then they are told of next time.
  template <class Gone>
  void drop_if(Gone&& gone) {
    const auto begin = packets_.begin();
    // As if the PacketIo had taken them.
    const auto kept = std::stable_partition(begin + sent_, begin + count_, gone);
    sent_ = static_cast<size_t>(kept - begin);
    tell();
    if (sent_ < count_) return;
    told_ = sent_ = count_ = limit_ = 0;
    refused_ = false;
  }

  io::PacketIo& io() { return io_; }

 private:
  bool make_room() {
    if (refused_ || !submit()) return false;
    limit_ = std::min(burst_, io_.room());
    return limit_ > 0;
  }
  // The packets are on their way before anybody is told of them.
  void leave() {
    offer();
    if (dirty_) dirty_ = !io_.flush();
    settle();
    backpressured_ = waiting();
  }
  void offer() {
    if (sent_ == count_) return;
    sent_ += io_.send(std::span(packets_).subspan(sent_, count_ - sent_));
    dirty_ = true;
  }
  // False: some have not been taken.
  bool settle() {
    tell();
    refused_ = sent_ < count_;
    if (refused_) return false;
    told_ = sent_ = count_ = limit_ = 0;
    return true;
  }
  // A packet is told of once, also where memory runs out meanwhile.
  void tell() {
    while (told_ < sent_) {
      const io::TxPacket& packet = packets_[told_++];
      if (packet.unreadable || packet.completes) on_done_(packet);
    }
  }

  io::PacketIo& io_;
  Done on_done_;
  const size_t burst_;
  const size_t company_;
  std::array<io::TxPacket, kSize> packets_;
  size_t count_ = 0;
  size_t sent_ = 0;
  size_t told_ = 0;   // of sent_
  size_t limit_ = 0;  // of count_; 0: not known yet
  // Some were not taken. To offer them again would make their bytes again, so that is left to leave().
  bool refused_ = false;
  bool dirty_ = false;  // sent and not yet kicked
  bool backpressured_ = false;
  int posts_at_once_ = kPostsAtOnce;
};

}  // namespace uroce::engine

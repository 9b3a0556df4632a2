// SPDX-License-Identifier: BSD-2-Clause
// Two scripted QPs connected to each other, without a network in between: what one gives out the other gets at once,
// as bytes. For tests that need both roles and whole messages.
#pragma once

#include <algorithm>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {

class QpPair {
 public:
  // `of_a` and `of_b` are alike but for what the peer has to agree on, which is done here.
  QpPair(QpAttributes of_a, QpAttributes of_b) {
    of_b.sq_psn = of_a.rq_psn;
    of_b.rq_psn = of_a.sq_psn;
    a.to_rts(of_a);
    b.to_rts(of_b);
  }
  explicit QpPair(const QpAttributes& of_both = default_attributes()) : QpPair(of_both, of_both) {}

  // Until neither has anything to send. The time stands still.
  void run() {
    while (move(a, b) + move(b, a) > 0) {
    }
  }
  // As run(), and whenever there is nothing to send on to the next deadline of `a`, until `a` completes something.
  void run_until_completion() {
    for (run(); a.send_cq.empty(); run()) {
      ASSERT_NE(a.qp.deadline(), kNever) << "nothing would ever happen";
      a.expire();
      b.now = a.now;
    }
  }

  ScriptedQp a, b;

 private:
  static size_t move(ScriptedQp& from, ScriptedQp& to) {
    size_t moved = 0;
    io::TxPacket packet;
    for (; from.qp.pull(packet, from.now); ++moved) deliver(packet, to);
    for (; from.qp.pull_ack(packet, from.now); ++moved) deliver(packet, to);
    return moved;
  }
  static void deliver(const io::TxPacket& sent, ScriptedQp& to) {
    Bytes ib(sent.header.begin(), sent.header.begin() + sent.header_size);
    for (uint8_t i = 0; i < sent.fragment_count; ++i) {
      ib.insert(ib.end(), sent.fragments[i].data, sent.fragments[i].data + sent.fragments[i].size);
    }
    ib.resize(ib.size() + sent.pad + wire::kIcrcSize);
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(ib, packet), wire::ParseError::kNone);
    to.qp.on_packet(packet, to.now);
  }
};

inline queue::SendWqe sized(queue::SendWqe wqe, uint32_t length) {
  wqe.length = length;
  return wqe;
}

// Memory whose region, or whose part that is used, has bytes in front and behind that nobody may touch.
struct GuardedBuffer {
  static constexpr size_t kGuard = 64;

  explicit GuardedBuffer(size_t size, uint64_t iova_ = kIova)
      : bytes(pattern(kGuard + size + kGuard, 9)), before(bytes), iova(iova_) {}

  memory::MemoryRegion region() {
    return {.base = data(), .iova = iova, .length = size(), .access = memory::kLocalWrite | kAllRemote, .pd = kPd};
  }
  uint8_t* data() { return bytes.data() + kGuard; }
  size_t size() const { return bytes.size() - 2 * kGuard; }
  Bytes content() const { return part(bytes, kGuard, size()); }
  bool guards_intact() const {
    const auto same = [&](size_t from) {
      return std::equal(bytes.begin() + static_cast<ptrdiff_t>(from),
                        bytes.begin() + static_cast<ptrdiff_t>(from + kGuard),
                        before.begin() + static_cast<ptrdiff_t>(from));
    };
    return same(0) && same(bytes.size() - kGuard);
  }
  bool untouched() const { return bytes == before; }

  Bytes bytes;
  const Bytes before;
  uint64_t iova;
};

}  // namespace uroce::transport::test

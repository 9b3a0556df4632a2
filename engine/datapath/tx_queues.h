// SPDX-License-Identifier: BSD-2-Clause
// The transmit queues of a datapath, one to the wire and one between QPs of this process, and what to do when memory
// that their packets point to goes away. Part of TxScheduler; under the progress lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/datapath/tx_burst.h"
#include "engine/memory/mr_table.h"
#include "engine/objects/address_handles.h"
#include "engine/objects/qp.h"

namespace uroce::engine {

class TxQueues {
 public:
  explicit TxQueues(TxBurst::Done on_done) : on_done_(std::move(on_done)) {}

  void attach_wire(io::PacketIo& io) { wire_ = std::make_unique<TxBurst>(io, on_done_); }
  void attach_loop(io::PacketIo& io) { loop_ = std::make_unique<TxBurst>(io, on_done_); }

  TxBurst& wire() { return *wire_; }
  TxBurst& loop() { return *loop_; }
  TxBurst& to(bool stays_here) { return stays_here ? *loop_ : *wire_; }

  // As TxBurst's. There may be no wire yet.
  void flush() {
    if (wire_) wire_->flush();
    loop_->flush();
  }
  // For who does not come back: where the packet I/O has no room, again and again for some 100 us.
  void flush_insistently() {
    flush();
    for (int tries = 0; tries < kInsistence && backpressured(); ++tries) flush();
  }
  void flush_post() {
    wire_->flush_post();
    loop_->flush();
  }
  bool waiting() const { return (wire_ && wire_->waiting()) || loop_->waiting(); }
  bool backpressured() const { return (wire_ && wire_->backpressured()) || loop_->backpressured(); }

  // Something that waiting packets point to is about to go away. Lost, as on a wire, are those of the QP (with its
  // inline data and its path), those with payload in the region, those on the way to the address handle; the packets of
  // others stay.
  void forget(const Qp& qp) {
    forget_if([qpn = qp.transport->qpn()](const io::TxPacket& packet) { return packet.source_qpn == qpn; });
  }
  void forget(const AddressHandle& handle) {
    forget_if([&handle](const io::TxPacket& packet) { return packet.envelope == &handle.path.envelope; });
  }
  void forget(const memory::MemoryRegion& region) {
    const auto base = reinterpret_cast<uintptr_t>(region.base);
    const auto lies_in_region = [base, end = base + region.length](const io::Fragment& fragment) {
      const auto data = reinterpret_cast<uintptr_t>(fragment.data);
      return data < end && base < data + fragment.size;
    };
    forget_if([&lies_in_region](const io::TxPacket& packet) {
      return std::any_of(packet.fragments.begin(), packet.fragments.begin() + packet.fragment_count, lies_in_region);
    });
  }
  void forget_all() {
    forget_if([](const io::TxPacket&) { return true; });
  }

 private:
  static constexpr int kInsistence = 64;  // tries of 1 to 2 us, mostly a system call

  template <class Gone>
  void forget_if(Gone&& gone) {
    if (wire_) wire_->drop_if(gone);
    loop_->drop_if(gone);
  }

  const TxBurst::Done on_done_;
  std::unique_ptr<TxBurst> wire_;  // null before it is attached
  std::unique_ptr<TxBurst> loop_;
};

}  // namespace uroce::engine

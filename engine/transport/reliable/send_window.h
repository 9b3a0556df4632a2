// SPDX-License-Identifier: BSD-2-Clause
// PSN bookkeeping of the requester side: which PSNs are in flight, where sending goes on, and which WQE a PSN is of.
//
//   WQEs:   tail ........ cursor ........ fetched ........ head          (SendQueue indices)
//   PSNs:   unacknowledged ... next ... end                              (next < end while resending)
//
// PSNs here are compared by their distance from `unacknowledged`, counted upward modulo 2^24: one READ of 2^31-1 bytes
// at a path MTU of 256 spans exactly 2^23 PSNs.
#pragma once

#include <cstdint>

#include "engine/queue/work_queue.h"
#include "wire/psn.h"

namespace uroce::transport {

class SendWindow {
 public:
  explicit SendWindow(queue::SendQueue& sq) : sq_(sq) {}

  void reset(wire::Psn first) {
    unacknowledged_ = next_ = end_ = first;
    cursor_ = sq_.tail();
  }

  wire::Psn unacknowledged() const { return unacknowledged_; }  // the oldest PSN that is not acknowledged
  wire::Psn next() const { return next_; }                      // the PSN to send next
  wire::Psn end() const { return end_; }                        // the first PSN never sent
  uint32_t cursor() const { return cursor_; }                   // the WQE that `next` belongs to, or will

  // Distance from the oldest unacknowledged PSN, 0 .. 2^24-1.
  uint32_t offset(wire::Psn psn) const { return psn.offset_from(unacknowledged_); }
  uint32_t in_flight() const { return offset(next_); }   // PSNs sent since the last (re)start
  uint32_t outstanding() const { return offset(end_); }  // PSNs ever sent and not acknowledged
  bool idle() const { return unacknowledged_ == end_; }
  bool resending() const { return next_ != end_; }
  // True for a PSN that was sent and is not acknowledged yet.
  bool covers(wire::Psn psn) const { return offset(psn) < outstanding(); }

  // A packet that consumes `psns` went out; `last`: it was its message's last (or only) request packet.
  void sent(uint32_t psns, bool last) {
    const uint32_t in_flight_after = in_flight() + psns;
    next_ = next_ + psns;
    if (in_flight_after > outstanding()) end_ = next_;
    if (last) ++cursor_;
  }

  // Everything before `psn` is acknowledged.
  void acknowledge_before(wire::Psn psn) {
    if (offset(psn) > in_flight()) next_ = psn;  // acknowledged while it was being resent
    unacknowledged_ = psn;
  }
  // The oldest WQE is complete; keeps the cursor from falling behind.
  void completed(uint32_t index) {
    if (cursor_ == index) ++cursor_;
  }

  // WQE `index`, whose first PSN is `first`, will not be sent (any more): the cursor does not pass it.
  void stop_at(uint32_t index, wire::Psn first) {
    if (static_cast<int32_t>(cursor_ - index) < 0) return;
    cursor_ = index;
    // Its first packets may be acknowledged already.
    next_ = offset(first) <= outstanding() ? first : unacknowledged_;
  }

  // Where sending stands, to come back to after sending a packet of before.
  struct Place {
    wire::Psn next;
    uint32_t cursor;
  };
  Place place() const { return {next_, cursor_}; }
  void go_to(Place place) {
    next_ = place.next;
    cursor_ = place.cursor;
  }

  // Go back: sending goes on at the oldest unacknowledged PSN, which is of the oldest incomplete WQE.
  void rewind() {
    next_ = unacknowledged_;
    cursor_ = sq_.tail();
  }

 private:
  queue::SendQueue& sq_;
  wire::Psn unacknowledged_;
  wire::Psn next_;
  wire::Psn end_;
  uint32_t cursor_ = 0;
};

}  // namespace uroce::transport

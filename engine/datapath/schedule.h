// SPDX-License-Identifier: BSD-2-Clause
// What the QPs of a datapath do next: which have packets to send, which owe ACKs, when whose timer expires. Whoever has
// given a QP something to think about (a doorbell, a packet, a timer, another state) calls reschedule(), which asks the
// transport and puts the QP into the lists where it belongs. Owned by Datapath; under the progress lock.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/timer_wheel.h"
#include "engine/datapath/ack_scheduler.h"
#include "engine/objects/qp.h"

namespace uroce::engine {

class Schedule {
 public:
  // A timer that expires so late was not kept waiting by other work: the process was stopped, or got no CPU. Longer
  // than what a scheduler lets a thread wait on a machine that is merely busy.
  static constexpr Duration kPause = std::chrono::milliseconds(10);

  // The QP may have become ready to send, or owe an ACK, or have another deadline or state.
  void reschedule(Qp& qp, Time now);
  void remove(Qp& qp);

  // The QPs that have packets to send, in the order of their turns.
  ReadyList& ready() { return ready_; }
  AckScheduler& acks() { return acks_; }
  // Calls the timers that have expired, `limit` at most.
  void expire_timers(Time now, size_t limit);
  Time next_deadline() const { return std::min(timers_.next_deadline(), acks_.deadline()); }
  // Nothing is to be sent before the deadline, with the next transmission or later.
  bool idle() const { return ready_.empty() && acks_.idle(); }
  bool next_is_empty() const { return ready_.empty() && acks_.none_due(); }

 private:
  static void publish_state(Qp& qp, Time now);

  ReadyList ready_;
  AckScheduler acks_;
  TimerWheel timers_;
};

}  // namespace uroce::engine

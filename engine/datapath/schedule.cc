// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/schedule.h"

#include <algorithm>
#include <atomic>

namespace uroce::engine {

void Schedule::reschedule(Qp& qp, Time now) {
  const transport::Agenda next = qp.transport->agenda(now);
  if (!qp.waits()) {  // for its next hop; who finds that calls again
    if (next.send && !qp.ready_hook.is_linked()) ready_.push_back(qp);
    if (next.ack) acks_.owe(qp, next, now);
  }
  if (!next.ack) AckScheduler::owe_nothing(qp);
  // One that had passed before anybody asked for it is as of now, so that expire_timers() finds out how late this host
  // is. One that was late before stays as late: packets are looked at first after a pause.
  timers_.set(qp, std::max(next.deadline, std::min(now, qp.deadline())));
  publish_state(qp, now);
}

// Receives posted while the QP went into the error state: either the poster sees the new state and rings, or what it
// posted is seen here.
void Schedule::publish_state(Qp& qp, Time now) {
  if (qp.visible_state.load(std::memory_order_relaxed) == qp.transport->state()) return;
  qp.visible_state.store(qp.transport->state(), std::memory_order_seq_cst);
  qp.transport->on_posted(now);
}

void Schedule::expire_timers(Time now, size_t limit) {
  timers_.expire(now, limit, [this, now](TimerWheel::Timer& timer) {
    Qp& qp = static_cast<Qp&>(timer);
    const Duration late = now - timer.deadline();
    if (late >= kPause) qp.transport->on_pause(late, now);
    qp.transport->on_timer(now);
    reschedule(qp, now);
  });
}

void Schedule::remove(Qp& qp) {
  qp.ready_hook.unlink();
  qp.ack_hook.unlink();
  timers_.cancel(qp);
}

}  // namespace uroce::engine

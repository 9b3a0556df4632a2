// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/unreliable/unreliable_qp.h"

namespace uroce::transport {

void UnreliableQp::enter(QpState to) {
  switch (to) {
    case QpState::kReset:
      qp_.sq.reset();
      if (!qp_.rq_shared) qp_.receive.rq->reset();
      requester_.reset();
      receive_.drop();
      qp_.lost_completion = false;
      break;
    case QpState::kRts:
      drain_reported_ = false;
      break;
    case QpState::kSqe:
      requester_.flush();
      break;
    case QpState::kErr:
      requester_.flush();
      receive_.flush();
      report_last_wqe();
      break;
    default:
      break;
  }
}

// An error of the send queue stops that alone; any other stops the QP.
void UnreliableQp::settle(Outcome outcome) {
  if (outcome == Outcome::kGoesOn && sending() && requester_.failed()) move_to(QpState::kSqe);
  if (outcome == Outcome::kFailed && state() != QpState::kErr && state() != QpState::kReset) move_to(QpState::kErr);
  if (state() == QpState::kSqd && !drain_reported_ && requester_.drained()) {
    drain_reported_ = true;
    if (qp_.attr.en_sqd_async_notify) qp_.events.on_event(AsyncEvent::kSqDrained);
  }
}

void UnreliableQp::move_to(QpState to) {
  qp_.attr.state = to;
  enter(to);
}

Outcome UnreliableQp::drop_too_long() {
  qp_.counters.add(Counter::kDropMessage);
  return qp_.rq_shared ? receive_.fail(queue::WcStatus::kLocalLengthError) : Outcome::kGoesOn;
}

void UnreliableQp::on_taken(const io::TxPacket& packet, Time now) {
  qp_.now = now;
  settle(requester_.on_taken(packet.send_index));
}

void UnreliableQp::on_unreadable(const io::TxPacket& packet, Time now) {
  qp_.now = now;
  requester_.on_unreadable(packet.send_index);
  settle(Outcome::kGoesOn);
}

void UnreliableQp::on_posted(Time now) {
  qp_.now = now;
  if (state() == QpState::kSqe || state() == QpState::kErr) requester_.flush();
  if (state() == QpState::kErr) receive_.flush();
}

}  // namespace uroce::transport

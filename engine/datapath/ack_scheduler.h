// SPDX-License-Identifier: BSD-2-Clause
// When the ACKs that QPs owe leave. The transport says that one is owed; everything else about it is decided here:
//
//   delayed        An ACK waits for the next round. The application that polls sees the message first, and what it
//                  answers leaves ahead of the ACK; one ACK covers everything that came meanwhile.
//   no longer      With the next round it leaves, behind the round's data, whether there was an answer or not. In the
//                  background nobody answers: there ACKs leave with the round that owes them.
//   ahead of data  Three do not wait: the ACK that the transport calls urgent, because it has covered enough messages;
//                  that of a message for which a completion event is raised, since perftest has one channel for both
//                  queues and takes the next event for that of its own send; and that of a QP that is about to stop
//                  answering, whose peer would ask until it gives up.
//
// A QP that waits for its next hop owes nothing until that is found. Part of Schedule, which calls owe(); TxScheduler
// sends what ahead_of_data() and behind_data() hold. Under the progress lock.
#pragma once

#include "engine/objects/qp.h"

namespace uroce::engine {

class AckScheduler {
 public:
  // The QP owes an ACK; it may have owed one before.
  void owe(Qp& qp, bool urgent) {
    if (urgent) {
      qp.ack_hook.unlink();
      urgent_.push_back(qp);
    } else if (!qp.ack_hook.is_linked()) {
      delayed_.push_back(qp);
    }
  }
  // An event tells of a message that the QP has taken: the ACK that it owes, if any, leaves ahead of the answer.
  void on_event(Qp& qp) {
    if (qp.ack_hook.is_linked()) owe(qp, true);
  }
  // The QP is about to stop answering: its ACK is the first to leave.
  void put_first(Qp& qp) {
    qp.ack_hook.unlink();
    urgent_.push_front(qp);
  }
  // What has been owed until now waits no longer: as a round begins and, in the background, before its last
  // transmission.
  void end_delay() {
    if (!delayed_.empty()) due_.splice(due_.end(), delayed_);
  }

  // The QPs whose ACKs leave with the next transmission.
  AckList& ahead_of_data() { return urgent_; }
  AckList& behind_data() { return due_; }
  // The next transmission has none to send.
  bool none_due() const { return due_.empty() && urgent_.empty(); }
  bool empty() const { return delayed_.empty() && due_.empty() && urgent_.empty(); }

 private:
  AckList delayed_;
  AckList due_;
  AckList urgent_;
};

}  // namespace uroce::engine

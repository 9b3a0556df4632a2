// SPDX-License-Identifier: BSD-2-Clause
// When the ACKs that QPs owe leave. The transport says that one is owed; everything else about it is decided here:
//
//   delayed        An ACK waits for the next round. The application that polls sees the message first, and what it
//                  answers leaves ahead of the ACK; one ACK covers everything that came meanwhile. In the background
//                  it leaves with the round that owes it.
//   waiting        That of a single WRITE, of which no completion tells the application, and that of a message that
//                  raises a completion event, wait longer where the application has answered the last one: until it
//                  posts something to the QP, or in vain (answer_habit.h). A peer that sleeps is woken once then, not
//                  twice.
//   due            It leaves with the next transmission, behind the round's data.
//   ahead of data  Three go first: the ACK that the transport calls urgent, because it has covered enough messages;
//                  that of a message that raises a completion event, since perftest has one channel for both queues and
//                  takes the next event for that of its own send; and that of a QP that is about to stop answering,
//                  whose peer would ask until it gives up. The first and the last do not wait.
//
// A QP that waits for its next hop owes nothing until that is found. Part of Schedule, which calls owe(); TxScheduler
// sends what ahead_of_data() and behind_data() hold. Under the progress lock.
#pragma once

#include "engine/objects/qp.h"
#include "engine/transport/common/transport_qp.h"

namespace uroce::engine {

class AckScheduler {
 public:
  // The QP owes an ACK; it may have owed one before.
  void owe(Qp& qp, const transport::Agenda& next, Time now) {
    if (next.ack_urgent) {
      move(qp, urgent_);
    } else if (!next.ack_of_lone_write) {
      if (qp.answer_habit.on_more() || !qp.ack_hook.is_linked()) move(qp, delayed_);
    } else if (!qp.ack_hook.is_linked()) {
      (qp.answer_habit.on_owed(now) ? waiting_ : delayed_).push_back(qp);
    }
  }
  // It owes none any more: a response or a NAK acknowledges what the ACK has waited with.
  static void owe_nothing(Qp& qp) {
    if (qp.answer_habit.stop_waiting()) qp.ack_hook.unlink();
  }
  // The application has posted something.
  void on_posted(Qp& qp, Time now) {
    const bool ahead = qp.answer_habit.is_of_event();
    if (qp.answer_habit.on_posted(now) && qp.ack_hook.is_linked()) move(qp, ahead ? urgent_ : due_);
  }
  // An event tells of a message that the QP has taken: the ACK that it owes, if any, leaves ahead of the answer. With
  // it, if the application answers.
  void on_event(Qp& qp, Time now) {
    if (!qp.ack_hook.is_linked()) return;
    qp.answer_habit.stop_waiting();
    move(qp, qp.answer_habit.on_event(now) ? waiting_ : urgent_);
  }
  // The QP is about to stop answering: its ACK is the first to leave.
  void put_first(Qp& qp) {
    qp.answer_habit.stop_waiting();
    qp.ack_hook.unlink();
    urgent_.push_front(qp);
  }

  // A round begins: what has been delayed, or has waited in vain, is due. After the round's posts have been looked at.
  void begin_round(Time now) {
    end_delay();
    while (deadline() <= now) {
      waiting_.front().answer_habit.on_missed();
      due_.splice(due_.end(), waiting_, waiting_.begin());
    }
  }
  // The application is back, and has not answered so far.
  void expect_no_answer() {
    for (Qp& qp : waiting_) qp.answer_habit.stop_waiting();
    due_.splice(due_.end(), waiting_);
  }
  // Nobody is going to answer any more: all that is owed leaves ahead of data.
  void end_waits() {
    for (Qp& qp : waiting_) qp.answer_habit.stop_waiting();
    for (AckList* const acks : {&delayed_, &waiting_, &due_}) urgent_.splice(urgent_.end(), *acks);
  }
  // What has been delayed is due: in the background, before the round's last transmission.
  void end_delay() {
    if (!delayed_.empty()) due_.splice(due_.end(), delayed_);
  }

  // The QPs whose ACKs leave with the next transmission.
  AckList& ahead_of_data() { return urgent_; }
  AckList& behind_data() { return due_; }
  // The next transmission has none to send.
  bool none_due() const { return due_.empty() && urgent_.empty(); }
  // Nothing is to leave before the deadline.
  bool idle() const { return delayed_.empty() && none_due(); }
  Time deadline() const { return waiting_.empty() ? kNever : waiting_.front().answer_habit.waits_until(); }

 private:
  void move(Qp& qp, AckList& to) {
    if (&to != &waiting_) qp.answer_habit.stop_waiting();
    qp.ack_hook.unlink();
    to.push_back(qp);
  }

  AckList delayed_;
  AckList waiting_;  // the longest first
  AckList due_;
  AckList urgent_;
};

}  // namespace uroce::engine

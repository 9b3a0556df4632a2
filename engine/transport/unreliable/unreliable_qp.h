// SPDX-License-Identifier: BSD-2-Clause
// What UC and UD have in common: a send queue that nobody answers, and a receive queue of its own.
#pragma once

#include "engine/transport/common/receive_request.h"
#include "engine/transport/common/transport_qp.h"
#include "engine/transport/unreliable/unreliable_requester.h"

namespace uroce::transport {

class UnreliableQp : public TransportQp {
 public:
  void on_taken(const io::TxPacket& packet, Time now) final;
  void on_unreadable(const io::TxPacket& packet, Time now) final;
  void on_posted(Time now) final;
  void on_timer(Time) final {}

 protected:
  explicit UnreliableQp(const QpConfig& config) : TransportQp(config), requester_(qp_), receive_(qp_) {}
  ~UnreliableQp() = default;

  void enter(QpState state) override;
  void settle(Outcome outcome) final;
  // The message is longer than the receive request it found: it is lost, and the QP goes on (IBTA 9.9.3, responder
  // faults of class D; rxe). The request stays for the next message. One of a shared queue is given back with an error
  // (class E), for it cannot be put back there.
  Outcome drop_too_long();

  UnreliableRequester requester_;
  ReceiveRequest receive_;

 private:
  void start_sending() final { requester_.start(qp_.attr.sq_psn); }
  void move_to(QpState state);

  bool drain_reported_ = false;
};

}  // namespace uroce::transport

// SPDX-License-Identifier: BSD-2-Clause
// The send queue of a QP whose peer does not answer: UC and UD. A WQE is done when the bytes of its last packet have
// been made. An error stops the send queue and nothing else: the QP goes to SQE (IBTA 10.3.1.2, wire.md "Completion
// status").
#pragma once

#include <cstdint>
#include <optional>

#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/common/request_packets.h"

namespace uroce::transport {

class UnreliableRequester {
 public:
  explicit UnreliableRequester(QpContext& qp) : qp_(qp), packets_(qp) {}

  void reset();
  void start(wire::Psn first) { psn_ = first; }
  wire::Psn next() const { return psn_; }

  // True when pull() would probably give a packet now.
  bool wants_to_send() const;
  // UC: executes what binds or invalidates here and is next.
  Outcome run_local_operations();
  // The next packet, or false. In SQD no new WQE is started.
  bool pull(io::TxPacket& out);
  // Every WQE is sent.
  bool exhausted() const { return cursor_ == qp_.sq.head(); }
  // UD: the address handle of the next packet; 0: there is none, or no packet.
  uint32_t next_address_handle();
  wire::Qpn next_remote() const { return wire::Qpn(qp_.sq.entry(cursor_).wqe.ud.remote_qpn); }
  // No WQE is being sent or waits for its bytes to be made.
  bool drained() const { return cursor_ == qp_.sq.tail() && packet_ == 0; }

  // The bytes of the last packet of WQE `index` have been made, or were dropped on the way, which is the same.
  Outcome on_taken(uint32_t index);
  // The payload of a packet of WQE `index` could not be read.
  void on_unreadable(uint32_t index);

  // A WQE has failed and all before it are done: the QP has to stop sending, and then flush().
  bool failed() const { return error_ && cursor_ == qp_.sq.tail(); }
  // Completes everything left, in order: the WQE that failed with its error, the others with a flush error.
  void flush();

 private:
  bool fetch_current();
  bool local(const queue::SendWqe& wqe) const;
  bool given_out(uint32_t index) const;
  queue::WcStatus validate(const queue::SendWqe& wqe) const;

  QpContext& qp_;
  RequestPackets packets_;
  uint32_t cursor_ = 0;  // the WQE to send from; [tail, cursor) wait for their bytes to be made
  uint32_t packet_ = 0;  // of the WQE at the cursor, to be sent next
  wire::Psn psn_;
  std::optional<queue::WcStatus> error_;  // of the WQE at the cursor
};

}  // namespace uroce::transport

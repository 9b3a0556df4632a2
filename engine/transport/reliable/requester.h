// SPDX-License-Identifier: BSD-2-Clause
// The requester of an RC QP, and its completer (completer.cc): what it does with responses. Turns WQEs into request
// packets, one per pull(), and completes them in order as the peer answers (IBTA 9.7.5, 9.7.6). What was lost is sent
// again by going back to it (go-back-N): every packet follows from its WQE and its PSN. Its parts do not know each
// other:
//
//   SendWindow       what is in flight, and where sending goes on
//   RequestPackets   a packet from a WQE and a PSN
//   LossRecovery     what to do about lost packets, and when
//
// Owned by RcQp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/common/request_packets.h"
#include "engine/transport/reliable/loss_recovery.h"
#include "engine/transport/reliable/send_window.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace uroce::transport {

class Requester {
 public:
  // Packets in flight without acknowledgement, where they do not leave in runs. Bounds what a receiver's ring has to
  // take at once.
  static constexpr uint32_t kWindow = congestion::Controller::kWindow;
  // An acknowledgement is asked for at least this often inside long messages, with that window.
  static constexpr uint32_t kAckInterval = kWindow / 4;

  explicit Requester(QpContext& context) : qp_(context), window_(context.sq), recovery_(context), packets_(context) {}

  void reset();
  // To RTS: numbers the packets from `first` on.
  void start(wire::Psn first) {
    window_.reset(first);
    went_back_to_ = first;
  }
  // The oldest PSN that is not acknowledged.
  wire::Psn unacknowledged() const { return window_.unacknowledged(); }
  // Completes everything left with a flush error, in order (IBTA 10.3.1).
  void flush();

  // --- sending: requester.cc ----------------------------------------------------------------------------------------
  // True when pull() would probably give a packet now. May be wrong in the positive.
  bool wants_to_send(Time now) const;
  // Executes what binds or invalidates here, if its turn has come: all before it is complete. Stricter than
  // IBTA 10.8.3.3 asks of a bind, which costs nothing that matters.
  Outcome run_local_operations();
  // The next request packet, or false. In SQD no new WQE is started.
  bool pull(io::TxPacket& out, Time now);
  // As TransportQp::pull_middle_packets().
  size_t pull_middle_packets(const io::TxPacket& previous, std::span<io::TxPacket> out, Time now);
  // Something may have happened in between.
  void forget_repeatable() { repeatable_ = 0; }
  // Every WQE is sent, and nothing is to be sent again.
  bool exhausted() const { return window_.cursor() == qp_.sq.head() && !recovery_.probe_due(); }
  // What pull() gives next is there because a timer expired, and is the first packet since.
  bool sends_for_timer() const {
    return recovery_.probe_due() || (in_flight() == 0 && window_.resending() && recovery_.timer_has_expired());
  }
  // Something has been sent (again) that is not acknowledged.
  uint32_t in_flight() const { return window_.in_flight(); }
  // Nothing is in flight, and no WQE is begun.
  bool drained() const;
  // The payload of request packet `psn`, which pull() gave, could not be read: its WQE fails.
  void on_unreadable(wire::Psn psn);
  // A WQE that failed before it was sent (IBTA 11.6.2 local errors) completes after all that precede it.
  Outcome settle_local_error();

  // --- answers and timers: completer.cc -----------------------------------------------------------------------------
  // A packet whose opcode is a response or acknowledgement.
  Outcome on_response(const wire::Packet& packet, Time now);
  // Middle packets of a READ's response, as RcQp::on_middle_packets() has them. False: they are to be taken one by one;
  // some of their bytes may be in memory already.
  bool take_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now);
  Outcome on_timer(Time now);
  void on_pause(Duration late, Time now) {
    if (!window_.idle()) recovery_.on_pause(late, now);
  }
  Time next_timer() const { return recovery_.next_timer(); }
  Time retransmission_timer() const { return recovery_.retransmission_timer(); }

 private:
  using Entry = queue::SendQueue::Entry;
  struct LocalError {
    uint32_t index;
    queue::WcStatus status;
  };
  enum class Advance : uint8_t { kDone, kBlocked, kFailed };

  bool window_full(uint32_t more = 0) const;
  // There is to be room for so many before sending goes on: for a run, but not for all that is in flight (the silly
  // window of RFC 1122).
  uint32_t packets_at_once() const { return std::min(std::max(qp_.run, qp_.most_psns), std::max(qp_.window / 4, 1u)); }
  // More often where the window is smaller. In the longer window of runs, half of it is two of them: an answer costs
  // either side as much as some twenty packets of a run.
  uint32_t ack_interval() const {
    const bool two_runs = qp_.window > kWindow && qp_.most_psns == 1;
    return std::max(qp_.window / (two_runs ? 2 : 4), 1u);
  }
  bool fetch_current();
  bool position();
  bool may_start(const Entry& entry) const;
  bool start(const Entry& entry);
  bool beyond_credits(const Entry& entry) const;
  bool credits_allow(const Entry& entry) const;
  bool answer_under_way() const;
  uint32_t psn_count(const queue::SendWqe& wqe) const;
  queue::WcStatus validate(const queue::SendWqe& wqe) const;
  bool local_operation_due();
  bool local_operation_follows() const;
  // True once sending has come to the WQE that failed; those before it may still be sent again.
  bool at_local_error() const { return local_error_ && local_error_->index == window_.cursor(); }
  bool want_ack(const Entry& entry, uint32_t n, uint32_t psns) const;
  uint32_t psns_at_once(const Entry& entry) const;
  bool waits_for_room() const;
  bool build(bool probe, io::TxPacket& out);
  bool pull_probe(io::TxPacket& out);
  SendWindow::Place oldest() const { return {window_.unacknowledged(), qp_.sq.tail()}; }
  SendWindow::Place newest_in_flight() const;
  bool covers(uint32_t index, wire::Psn psn) const;

  Entry oldest_entry() const { return qp_.sq.entry(qp_.sq.tail()); }
  bool oldest_awaits_response() const;
  std::optional<LossRecovery::LongRead> oldest_long_read() const;
  bool belongs_to_oldest(wire::Psn psn) const;
  bool refuses_oldest(const wire::Packet& packet) const;
  void on_credits(wire::Aeth aeth);
  void on_answered_twice(const wire::Packet& packet, Time now);
  Outcome on_acknowledge(const wire::Packet& packet, Time now);
  Outcome on_nak(wire::Psn psn, uint8_t code, Time now);
  Outcome on_read_response(const wire::Packet& packet, Time now);
  Outcome on_read_data(const wire::Packet& packet, Time now);
  Outcome on_bare_response(const wire::Packet& packet, Time now);
  Outcome on_atomic_response(const wire::Packet& packet, Time now);
  Outcome on_overtaken(Time now);
  Advance advance_to(wire::Psn psn, Time now);
  std::optional<Outcome> acknowledge_before(wire::Psn psn, Time now);
  Outcome answered(wire::Psn psn, bool message_done, Time now);
  Outcome carry_out(LossRecovery::Decision decision, queue::WcStatus giving_up = queue::WcStatus::kRetryExceeded);
  void tell_of_loss();
  void try_runs();
  Outcome complete(queue::WcStatus status);
  Outcome fail(queue::WcStatus status);

  QpContext& qp_;
  SendWindow window_;
  wire::Psn went_back_to_;  // by the last rewind; before the first one, where it began
  std::optional<LocalError> local_error_;
  LossRecovery recovery_;
  RequestPackets packets_;
  uint32_t reads_outstanding_ = 0;  // and atomics
  uint32_t messages_ = 0;           // started so far
  // The last message that the peer has a receive request for (the LSN of IBTA 9.7.7.2); none: it does not count them.
  std::optional<wire::Msn> credit_limit_;
  uint32_t since_ack_request_ = 0;          // packets
  uint32_t repeatable_ = 0;                 // how many packets behind the last one differ in PSN and place only
  std::optional<wire::Psn> ack_requested_;  // the last packet that asked
};

}  // namespace uroce::transport

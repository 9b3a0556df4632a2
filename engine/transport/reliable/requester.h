// The sending half of an RC QP's send queue: turns WQEs into request packets, one per pull(), from any PSN onward.
// Sends again what is asked for again, by going back (go-back-N, IBTA 9.7.5). Owned by RcQp.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/common/request_builder.h"
#include "engine/transport/reliable/send_window.h"
#include "wire/aeth.h"

namespace uroce::transport {

class Requester {
 public:
  // Packets in flight without acknowledgement. Bounds what a receiver's ring has to take at once.
  static constexpr uint32_t kWindow = 128;
  // An acknowledgement is asked for at least this often inside long messages.
  static constexpr uint32_t kAckInterval = kWindow / 4;

  Requester(QpContext& context, SendWindow& window) : qp_(context), window_(window), builder_(context) {}

  void reset();

  // True when pull() would probably give a packet now. May be wrong in the positive.
  bool wants_to_send() const;

  // The next request packet, or false. In SQD no new WQE is started.
  bool pull(io::TxPacket& out);

  // Sends the oldest and the newest packet of those in flight (the newest before long READs) once more, both asking for
  // an acknowledgement; sending goes on where it was after them. Between them the answers tell everything: a peer that
  // has all packets acknowledges them, one that lacks the oldest takes it and refuses the newest, one that lacks
  // something between has had no reason to say so yet and has one now (IBTA 9.7.5.2.8), and one that is only slow has
  // two packets more to do.
  void probe() {
    if (!probe_due()) probe_ = Probe::kOldest;
  }
  bool probe_due() const { return probe_ != Probe::kNone; }
  // Whether the packet at PSN `psn` is one of these.
  bool probes(wire::Psn psn) const {
    return window_.in_flight() > 0 && (psn == window_.unacknowledged() || psn == newest_in_flight().next);
  }

  // The oldest WQE is one that binds or invalidates here, and its turn has come: all before it are complete. Stricter
  // than IBTA 10.8.3.3 asks of a bind, which costs nothing that matters.
  bool local_operation_due();
  // Its outcome; the caller completes it.
  queue::WcStatus execute_local();

  // A WQE that failed before it was sent (IBTA 11.6.2 local errors). It completes after all that precede it.
  struct LocalError {
    uint32_t index;
    queue::WcStatus status;
  };
  const std::optional<LocalError>& local_error() const { return local_error_; }

  // The payload of request packet `psn`, which pull() gave, could not be read: its WQE fails.
  void on_unreadable(wire::Psn psn);

  // WQE `index` is complete. If it had failed here as well: it was acknowledged all the same.
  void completed(uint32_t index) {
    if (local_error_ && local_error_->index == index) local_error_.reset();
  }

  // A READ or atomic completed: one more may be started.
  void read_or_atomic_completed() { --reads_outstanding_; }

  // The packet sent last is the first behind one that asked for an acknowledgement, and does not ask itself.
  bool follows_ack_request() const { return since_ack_request_ == 1; }

  // End-to-end flow control: what the AETH of an acknowledgement or response says about receive requests.
  void on_credits(wire::Aeth aeth);

  // Nothing is sent until then (RNR NAK).
  void wait_until(Time time) { resume_at_ = time; }
  Time resume_at() const { return resume_at_; }

 private:
  bool fetch_current();
  bool position();
  bool may_start(const queue::SendQueue::Entry& entry) const;
  bool beyond_credits(const queue::SendQueue::Entry& entry) const;
  bool credits_allow(const queue::SendQueue::Entry& entry) const;
  bool answer_under_way() const;
  bool start(const queue::SendQueue::Entry& entry);
  uint32_t psn_count(const queue::SendWqe& wqe) const;
  queue::WcStatus validate(const queue::SendWqe& wqe) const;
  // True once sending has come to the WQE that failed; those before it may still be sent again.
  bool at_local_error() const { return local_error_ && local_error_->index == window_.cursor(); }
  void fail(queue::WcStatus status) { local_error_ = LocalError{window_.cursor(), status}; }

  bool build(const queue::SendQueue::Entry& entry, io::TxPacket& out);
  bool pull_probe(io::TxPacket& out);
  SendWindow::Place oldest() const { return {window_.unacknowledged(), qp_.sq.tail()}; }
  SendWindow::Place newest_in_flight() const;
  bool covers(uint32_t index, wire::Psn psn) const;
  bool want_ack(const queue::SendQueue::Entry& entry, uint32_t n) const;
  bool local_operation_follows() const;
  void note_ack_request(bool asked, wire::Psn psn);

  QpContext& qp_;
  SendWindow& window_;
  RequestBuilder builder_;
  std::optional<LocalError> local_error_;
  uint32_t reads_outstanding_ = 0;
  uint32_t messages_ = 0;  // started so far
  // The last message that the peer has a receive request for (the LSN of IBTA 9.7.7.2); none: it does not count them.
  std::optional<wire::Msn> credit_limit_;
  enum class Probe : uint8_t { kNone, kOldest, kNewest };
  Probe probe_ = Probe::kNone;      // what is to be sent of it next
  bool probing_ = false;            // the packet being built is of a probe
  uint32_t since_ack_request_ = 0;  // packets
  bool ack_requested_ = false;
  wire::Psn ack_requested_psn_;  // the last one that asked
  Time resume_at_{};
};

}  // namespace uroce::transport

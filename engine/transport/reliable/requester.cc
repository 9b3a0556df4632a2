#include "engine/transport/reliable/requester.h"

#include <algorithm>

#include "engine/transport/common/send_completion.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::SendWqe;
using queue::WcStatus;
using queue::WrOpcode;

namespace {

constexpr uint32_t kAtomicSize = 8;

bool consumes_receive(WrOpcode opcode) {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImmediate ||
         opcode == WrOpcode::kSendWithInvalidate || opcode == WrOpcode::kRdmaWriteWithImmediate;
}

}  // namespace

void Requester::reset() {
  local_error_.reset();
  reads_outstanding_ = 0;
  messages_ = 0;
  credit_limit_.reset();
  probe_ = Probe::kNone;
  since_ack_request_ = 0;
  ack_requested_ = false;
  resume_at_ = Time{};
}

bool Requester::wants_to_send() const {
  if (probe_ != Probe::kNone) return true;
  if (at_local_error() || window_.in_flight() >= kWindow) return false;
  if (window_.cursor() == qp_.sq.fetched()) return qp_.attr.state == QpState::kRts && qp_.sq.head() != window_.cursor();
  const SendQueue::Entry entry = qp_.sq.entry(window_.cursor());
  if (is_local(entry.wqe.opcode)) return qp_.attr.state == QpState::kRts && window_.cursor() == qp_.sq.tail();
  return (entry.progress.started || may_start(entry)) && credits_allow(entry);
}

bool Requester::local_operation_due() {
  if (qp_.failed || at_local_error() || window_.cursor() != qp_.sq.tail() || !fetch_current()) return false;
  return qp_.attr.state == QpState::kRts && is_local(qp_.sq.entry(window_.cursor()).wqe.opcode);
}

WcStatus Requester::execute_local() {
  const WcStatus status = transport::execute_local(qp_, qp_.sq.entry(qp_.sq.tail()).wqe);
  if (status != WcStatus::kSuccess) qp_.failed = true;
  return status;
}

bool Requester::pull(io::TxPacket& out) {
  if (probe_ != Probe::kNone && pull_probe(out)) return true;
  if (at_local_error() || qp_.now < resume_at_ || window_.in_flight() >= kWindow || !position()) return false;
  return build(qp_.sq.entry(window_.cursor()), out);
}

bool Requester::pull_probe(io::TxPacket& out) {
  const bool first = probe_ == Probe::kOldest;
  probe_ = Probe::kNone;
  // With nothing in flight sending goes on from the oldest anyway.
  if (window_.in_flight() == 0 || qp_.now < resume_at_) return false;
  const SendWindow::Place here = window_.place();
  const auto awaited = answer_under_way() ? std::optional(ack_requested_psn_) : std::nullopt;
  const SendWindow::Place newest = newest_in_flight();
  const bool two = newest.next != window_.unacknowledged();
  if (!first && !two) return false;  // all others have been acknowledged meanwhile
  if (first && two) probe_ = Probe::kNewest;
  window_.go_to(first ? oldest() : newest);
  if (at_local_error()) {
    window_.go_to(here);
    return false;
  }
  probing_ = true;
  const bool sent = build(qp_.sq.entry(window_.cursor()), out);
  probing_ = false;
  if (!sent) return false;
  if (awaited) ack_requested_psn_ = *awaited;
  out.reason = io::SendReason::kProbe;
  window_.go_to(here);
  return true;
}

// The last packet in flight, something being in flight; but not of a READ with several responses, which would all come
// again. Asking for the last of them only would not do: a peer may remember only what it was asked for last.
SendWindow::Place Requester::newest_in_flight() const {
  SendWindow::Place place{window_.next() - 1, window_.cursor()};
  if (place.cursor == qp_.sq.fetched() || !covers(place.cursor, place.next)) --place.cursor;
  while (place.cursor != qp_.sq.tail()) {
    const SendQueue::Entry entry = qp_.sq.entry(place.cursor);
    if (entry.wqe.opcode != WrOpcode::kRdmaRead || entry.progress.psn_count == 1) return place;
    place = {wire::Psn(entry.progress.first_psn) - 1, place.cursor - 1};
  }
  return awaits_response(qp_.sq.entry(place.cursor).wqe.opcode) ? oldest() : place;
}

// PSN `psn` is of WQE `index`.
bool Requester::covers(uint32_t index, wire::Psn psn) const {
  const queue::SendProgress& progress = qp_.sq.entry(index).progress;
  return progress.started && ((psn.value() - progress.first_psn) & wire::kMask24) < progress.psn_count;
}

void Requester::on_unreadable(wire::Psn psn) {
  for (uint32_t index = qp_.sq.tail(); index != qp_.sq.fetched(); ++index) {
    if (!qp_.sq.entry(index).progress.started) return;
    if (!covers(index, psn)) continue;
    if (local_error_ && static_cast<int32_t>(local_error_->index - index) <= 0)
      return;  // an earlier one failed already
    local_error_ = LocalError{index, WcStatus::kLocalProtectionError};
    window_.stop_at(index, wire::Psn(qp_.sq.entry(index).progress.first_psn));
    return;
  }
}

// The WQE at the cursor has been copied from what was posted. False: there is none, or none may be begun.
bool Requester::fetch_current() {
  if (window_.cursor() != qp_.sq.fetched()) return true;
  if (qp_.attr.state != QpState::kRts || qp_.sq.head() == window_.cursor()) return false;
  qp_.sq.fetch();
  return true;
}

// Makes the cursor stand on a WQE that may be sent from. False: nothing to send now.
bool Requester::position() {
  if (!fetch_current()) return false;
  const SendQueue::Entry entry = qp_.sq.entry(window_.cursor());
  if (is_local(entry.wqe.opcode)) return false;
  return credits_allow(entry) && (entry.progress.started || start(entry));
}

// The newest word counts: a limit never moves back, so older ones are late.
void Requester::on_credits(wire::Aeth aeth) {
  const uint32_t credits = wire::credit_count(aeth.value());
  if (credits == wire::kNoCredits) return credit_limit_.reset();
  const wire::Msn limit(aeth.msn.value() + credits);
  if (!credit_limit_ || wire::Msn::distance(*credit_limit_, limit) > 0) credit_limit_ = limit;
}

// The peer may not have a receive request for this message, or for the one after it.
bool Requester::beyond_credits(const SendQueue::Entry& entry) const {
  const uint32_t message = entry.progress.started ? entry.progress.message : messages_ + 1;
  return credit_limit_ && consumes_receive(entry.wqe.opcode) &&
         wire::Msn::distance(*credit_limit_, wire::Msn(message)) > 0;
}

// Beyond the credits one packet at a time may try its luck (IBTA 9.7.7.2.5): when no answer is under way that could
// bring more. Once the first packet of a SEND is acknowledged, the message has its receive request. A WRITE with
// immediate takes one with its last packet only, so its data may go ahead.
bool Requester::credits_allow(const SendQueue::Entry& entry) const {
  if (!beyond_credits(entry)) return true;
  const wire::Psn first(entry.progress.first_psn);
  if (!entry.progress.started || window_.next() == first) return !answer_under_way();
  return entry.wqe.opcode == WrOpcode::kRdmaWriteWithImmediate || window_.offset(first) >= wire::kPsnHalf;
}

// A packet in flight has asked for an acknowledgement.
bool Requester::answer_under_way() const {
  return ack_requested_ && window_.offset(ack_requested_psn_) < window_.in_flight();
}

// Ordering rules of IBTA 10.8.3.3 and the depth negotiated for READs and atomics (9.7.3.1, 11.2.4.2).
bool Requester::may_start(const SendQueue::Entry& entry) const {
  if (qp_.attr.state != QpState::kRts) return false;
  if ((entry.wqe.flags & queue::kFence) && reads_outstanding_ > 0) return false;
  // A receiver tells new from duplicate by half the PSN space (wire.md "RC semantics"); a READ may take all of it.
  if (window_.outstanding() + psn_count(entry.wqe) > wire::kPsnHalf) return false;
  if (awaits_response(entry.wqe.opcode)) {
    // A depth of 0 is an error that start() reports.
    return qp_.attr.max_rd_atomic == 0 || reads_outstanding_ < qp_.attr.max_rd_atomic;
  }
  return true;
}

bool Requester::start(const SendQueue::Entry& entry) {
  if (!may_start(entry)) return false;
  if (const WcStatus status = validate(entry.wqe); status != WcStatus::kSuccess) {
    fail(status);
    return false;
  }
  entry.progress.first_psn = window_.end().value();
  entry.progress.psn_count = psn_count(entry.wqe);
  entry.progress.message = ++messages_;
  entry.progress.started = true;
  if (awaits_response(entry.wqe.opcode)) ++reads_outstanding_;
  return true;
}

uint32_t Requester::psn_count(const SendWqe& wqe) const {
  const bool single = awaits_response(wqe.opcode) && wqe.opcode != WrOpcode::kRdmaRead;
  return single || wqe.length > kMaxMessage ? 1 : packet_count(wqe.length, qp_.attr.path_mtu);
}

WcStatus Requester::validate(const SendWqe& wqe) const {
  if (qp_.type == QpType::kXrcTarget) return WcStatus::kLocalQpOperationError;  // it has no requests
  switch (wqe.opcode) {
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      if (wqe.length != kAtomicSize) return WcStatus::kLocalLengthError;
      [[fallthrough]];
    case WrOpcode::kRdmaRead:
      if (qp_.attr.max_rd_atomic == 0 || (wqe.flags & queue::kInline)) return WcStatus::kLocalQpOperationError;
      break;
    case WrOpcode::kAtomicWrite:
    case WrOpcode::kFlush:
      // Not of XRC (IBTA A19); a FLUSH carries nothing.
      if (qp_.type != QpType::kRc || qp_.attr.max_rd_atomic == 0) return WcStatus::kLocalQpOperationError;
      return wqe.length == (wqe.opcode == WrOpcode::kFlush ? 0 : kAtomicSize) ? WcStatus::kSuccess
                                                                              : WcStatus::kLocalLengthError;
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImmediate:
    case WrOpcode::kSendWithInvalidate:
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImmediate:
      break;
    default:
      return WcStatus::kLocalQpOperationError;
  }
  return wqe.length > kMaxMessage ? WcStatus::kLocalLengthError : WcStatus::kSuccess;
}

bool Requester::build(const SendQueue::Entry& entry, io::TxPacket& out) {
  const bool again = window_.resending();
  const wire::Psn psn = window_.next();
  const uint32_t n = (psn.value() - entry.progress.first_psn) & wire::kMask24;
  out.clear_payload();
  out.reason = window_.reason();
  uint32_t psns = 1;
  bool last = true;
  bool readable = true;
  bool asks = true;
  switch (entry.wqe.opcode) {
    case WrOpcode::kRdmaRead:
      psns = entry.progress.psn_count - n;
      builder_.read(entry, n, psn, out);
      break;
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      builder_.atomic(entry, psn, out);
      break;
    case WrOpcode::kAtomicWrite:
      readable = builder_.atomic_write(entry, psn, out);
      break;
    case WrOpcode::kFlush:
      builder_.flush(entry, psn, out);
      break;
    default:
      last = n + 1 == entry.progress.psn_count;
      asks = want_ack(entry, n);
      readable = builder_.message(entry, n, entry.progress.psn_count, psn, asks, out);
      break;
  }
  if (!readable) {
    fail(WcStatus::kLocalProtectionError);
    return false;
  }
  note_ack_request(asks, psn);
  window_.sent(psns, last);
  qp_.counters.add(Counter::kTxRequests);
  if (again) qp_.counters.add(Counter::kTxRetransmissions);
  return true;
}

void Requester::note_ack_request(bool asked, wire::Psn psn) {
  since_ack_request_ = asked ? 0 : since_ack_request_ + 1;
  if (!asked) return;
  ack_requested_ = true;
  ack_requested_psn_ = psn;
}

// Asking costs the peer a packet, so not every message asks (IBTA 9.7.5.1.2 leaves it to the requester): those whose
// completion somebody waits for do, long messages now and then, and the last posted one if no answer is under way.
bool Requester::want_ack(const SendQueue::Entry& entry, uint32_t n) const {
  if (probing_ || since_ack_request_ + 1 >= kAckInterval || window_.in_flight() + 1 >= kWindow || beyond_credits(entry))
    return true;
  if (n + 1 != entry.progress.psn_count) return false;
  if (credit_limit_ && *credit_limit_ == wire::Msn(entry.progress.message)) return true;  // the next one needs to know
  if (qp_.signal_all || (entry.wqe.flags & queue::kSignaled)) return true;
  if (local_operation_follows()) return true;
  return !answer_under_way() && qp_.sq.head() == window_.cursor() + 1;
}

// The WQE behind the one at the cursor waits for this one's completion.
bool Requester::local_operation_follows() const {
  const uint32_t next = window_.cursor() + 1;
  if (next == qp_.sq.head()) return false;
  return is_local(next == qp_.sq.fetched() ? qp_.sq.posted_opcode(next) : qp_.sq.entry(next).wqe.opcode);
}

}  // namespace uroce::transport

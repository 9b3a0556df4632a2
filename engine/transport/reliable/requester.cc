// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/reliable/requester.h"

#include "engine/transport/common/send_completion.h"

namespace uroce::transport {

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
  window_.reset(wire::Psn{});
  recovery_.reset();
  local_error_.reset();
  credit_limit_.reset();
  ack_requested_.reset();
  reads_outstanding_ = messages_ = since_ack_request_ = repeatable_ = 0;
}

bool Requester::wants_to_send(Time now) const {
  if (recovery_.waits(now)) return false;
  if (recovery_.probe_due()) return true;
  if (at_local_error() || window_full(packets_at_once() - 1)) return false;
  if (window_.cursor() == qp_.sq.fetched()) return qp_.attr.state == QpState::kRts && qp_.sq.head() != window_.cursor();
  const Entry entry = qp_.sq.entry(window_.cursor());
  if (is_local(entry.wqe.opcode)) return qp_.attr.state == QpState::kRts && window_.cursor() == qp_.sq.tail();
  return (entry.progress.started || may_start(entry)) && credits_allow(entry);
}

// There is no room for a packet and `more` behind it. A window that has shrunk waits for an answer, and asks for one
// where none is under way.
bool Requester::window_full(uint32_t more) const {
  const uint32_t largest = std::max(kWindow, qp_.window);
  return window_.in_flight() >= largest || (window_.in_flight() + more >= qp_.window && answer_under_way());
}

bool Requester::drained() const {
  return window_.idle() && (qp_.sq.fetched() == qp_.sq.tail() || !oldest_entry().progress.started);
}

// --- local operations -----------------------------------------------------------------------------------------------

bool Requester::local_operation_due() {
  if (at_local_error() || window_.cursor() != qp_.sq.tail() || !fetch_current()) return false;
  return qp_.attr.state == QpState::kRts && is_local(qp_.sq.entry(window_.cursor()).wqe.opcode);
}

Outcome Requester::run_local_operations() {
  while (local_operation_due()) {
    const WcStatus status = execute_local(qp_, oldest_entry().wqe);
    const Outcome outcome = complete(status);
    if (status != WcStatus::kSuccess || outcome == Outcome::kFailed) return Outcome::kFailed;
  }
  return Outcome::kGoesOn;
}

// --- packets --------------------------------------------------------------------------------------------------------

bool Requester::pull(io::TxPacket& out, Time now) {
  if (!recovery_.may_send(now)) {
    recovery_.take_probe();  // everything is sent again after the wait
    return false;
  }
  const bool was_idle = window_.idle();
  const bool first = in_flight() == 0;
  const bool again = window_.resending() || recovery_.probe_due();
  const wire::Psn psn = window_.next();
  if (!pull_probe(out)) {
    if (at_local_error() || window_full() || !position() || waits_for_room() || !build(false, out)) return false;
  }
  // Once the ones before it are acknowledged, the packet behind one that asked for it is the oldest, and an early probe
  // would take the measurement away, so another one is timed.
  recovery_.on_sent(psn, was_idle, first, !again && since_ack_request_ != out.psns, now);
  return true;
}

// As many as neither ask for an acknowledgement nor fill the window: nothing else has changed since build() has looked.
size_t Requester::pull_middle_packets(const io::TxPacket& previous, std::span<io::TxPacket> out, Time now) {
  const auto before = [](uint32_t limit, uint32_t used) { return limit > used + 1 ? limit - used - 1 : 0; };
  const uint32_t count =
      std::min({static_cast<uint32_t>(out.size()), repeatable_, before(ack_interval(), since_ack_request_),
                before(qp_.window, window_.in_flight())});
  if (count == 0) return 0;
  const wire::Psn psn = window_.next();
  RequestPackets::repeat(previous, psn, out.first(count));
  const uint32_t timed = since_ack_request_ == 0 ? 1 : 0;  // as in pull()
  if (timed < count) recovery_.on_sent(psn + timed, false, false, true, now);
  repeatable_ -= count;
  since_ack_request_ += count;
  window_.sent(count, false);
  qp_.counters.add(Counter::kTxRequests, count);
  return count;
}

// The packet at which sending stands. `probe`: as one of a probe.
bool Requester::build(bool probe, io::TxPacket& out) {
  const Entry entry = qp_.sq.entry(window_.cursor());
  const wire::Psn psn = window_.next();
  const bool again = window_.resending();
  const uint32_t n = psn.offset_from(wire::Psn(entry.progress.first_psn));
  const bool responds = awaits_response(entry.wqe.opcode);
  // Whether that one arrives and those behind it do not (run_trial.h).
  const bool tries_runs = qp_.run_trial != nullptr && again && window_.in_flight() == 0;
  const uint32_t psns = responds || probe || tries_runs ? 1 : psns_at_once(entry);
  const bool asks = responds || probe || tries_runs || want_ack(entry, n, psns);
  out.clear_payload();
  out.alone = probe || tries_runs;
  out.reason = probe ? io::SendReason::kProbe : again ? recovery_.cause() : io::SendReason::kFirst;
  // The QP's first packet asks in any case: none queue in front of it, so that it tells the round trip.
  const bool very_first = entry.progress.message == 1 && n == 0;
  if (!packets_.request(entry, psn, psns, asks || very_first, out)) {
    local_error_ = LocalError{window_.cursor(), WcStatus::kLocalProtectionError};
    return false;
  }
  const bool may_repeat = !responds && !probe && !again && qp_.most_psns == 1;
  if (may_repeat && !beyond_credits(entry)) repeatable_ = packets_.repeatable_behind(entry, n, out);
  since_ack_request_ = asks || very_first ? 0 : since_ack_request_ + psns;
  if (asks) ack_requested_ = psn + (psns - 1);
  const uint32_t taken = responds ? entry.progress.psn_count - n : psns;  // a READ counts with its responses
  window_.sent(taken, n + taken == entry.progress.psn_count);
  qp_.counters.add(Counter::kTxRequests);
  if (again) qp_.counters.add(Counter::kTxRetransmissions);
  return true;
}

// As many packets of the message as may leave as one; beyond the credits, a single one.
uint32_t Requester::psns_at_once(const Entry& entry) const {
  if (qp_.most_psns == 1 || beyond_credits(entry)) return 1;
  const uint32_t n = window_.next().offset_from(wire::Psn(entry.progress.first_psn));
  const uint32_t room = qp_.window > window_.in_flight() ? qp_.window - window_.in_flight() : 1;
  return std::min({qp_.most_psns, entry.progress.psn_count - n, room});
}

// The window has room for a part of the long packet that is next; soon for all of it.
bool Requester::waits_for_room() const {
  if (qp_.most_psns == 1 || awaits_response(qp_.sq.entry(window_.cursor()).wqe.opcode)) return false;
  const queue::SendProgress& message = qp_.sq.entry(window_.cursor()).progress;
  const uint32_t left = message.psn_count - window_.next().offset_from(wire::Psn(message.first_psn));
  return window_full(std::min(packets_at_once(), left) - 1);
}

// A probe is the oldest and the newest packet of those in flight (the newest before long READs) once more, both asking
// for an acknowledgement; sending goes on where it was after them. Between them the answers tell everything: a peer
// that has all packets acknowledges them, one that lacks the oldest takes it and refuses the newest, one that lacks
// something between has had no reason to say so yet and has one now (IBTA 9.7.5.2.8), and one that is only slow has two
// packets more to do.
bool Requester::pull_probe(io::TxPacket& out) {
  using Probe = LossRecovery::Probe;
  const Probe due = recovery_.take_probe();
  // With nothing in flight sending goes on from the oldest anyway.
  if (due == Probe::kNone || window_.in_flight() == 0) return false;
  const SendWindow::Place here = window_.place();
  const SendWindow::Place newest = newest_in_flight();
  const bool two = newest.next != window_.unacknowledged();
  if (due == Probe::kNewest && !two) return false;  // all others have been acknowledged meanwhile
  if (due == Probe::kOldest && two) recovery_.probe_newest();
  const auto awaited = answer_under_way() ? ack_requested_ : std::nullopt;
  window_.go_to(due == Probe::kOldest ? oldest() : newest);
  if (at_local_error()) {
    window_.go_to(here);
    return false;
  }
  if (!build(true, out)) return false;  // sending stops there
  if (awaited) ack_requested_ = awaited;
  window_.go_to(here);
  return true;
}

// The last packet in flight, something being in flight; but not of a READ with several responses, which would all come
// again. Asking for the last of them only would not do: a peer may remember only what it was asked for last.
SendWindow::Place Requester::newest_in_flight() const {
  SendWindow::Place place{window_.next() - 1, window_.cursor()};
  if (place.cursor == qp_.sq.fetched() || !covers(place.cursor, place.next)) --place.cursor;
  while (place.cursor != qp_.sq.tail()) {
    const Entry entry = qp_.sq.entry(place.cursor);
    if (entry.wqe.opcode != WrOpcode::kRdmaRead || entry.progress.psn_count == 1) return place;
    place = {wire::Psn(entry.progress.first_psn) - 1, place.cursor - 1};
  }
  return awaits_response(qp_.sq.entry(place.cursor).wqe.opcode) ? oldest() : place;
}

// PSN `psn` is of WQE `index`.
bool Requester::covers(uint32_t index, wire::Psn psn) const {
  const queue::SendProgress& progress = qp_.sq.entry(index).progress;
  return progress.started && psn.offset_from(wire::Psn(progress.first_psn)) < progress.psn_count;
}

void Requester::on_unreadable(wire::Psn psn) {
  repeatable_ = 0;
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

// --- WQEs -----------------------------------------------------------------------------------------------------------

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
  const Entry entry = qp_.sq.entry(window_.cursor());
  if (is_local(entry.wqe.opcode)) return false;
  return credits_allow(entry) && (entry.progress.started || start(entry));
}

// The peer may not have a receive request for this message, or for the one after it.
bool Requester::beyond_credits(const Entry& entry) const {
  const uint32_t message = entry.progress.started ? entry.progress.message : messages_ + 1;
  return credit_limit_ && consumes_receive(entry.wqe.opcode) &&
         wire::Msn::distance(*credit_limit_, wire::Msn(message)) > 0;
}

// Beyond the credits one packet at a time may try its luck (IBTA 9.7.7.2.5): when no answer is under way that could
// bring more. Once the first packet of a SEND is acknowledged, the message has its receive request. A WRITE with
// immediate takes one with its last packet only, so its data may go ahead.
bool Requester::credits_allow(const Entry& entry) const {
  if (!beyond_credits(entry)) return true;
  const wire::Psn first(entry.progress.first_psn);
  if (!entry.progress.started || window_.next() == first) return !answer_under_way();
  return entry.wqe.opcode == WrOpcode::kRdmaWriteWithImmediate || window_.offset(first) >= wire::kPsnHalf;
}

// A packet in flight has asked for an acknowledgement.
bool Requester::answer_under_way() const {
  return ack_requested_ && window_.offset(*ack_requested_) < window_.in_flight();
}

// Ordering rules of IBTA 10.8.3.3 and the depth negotiated for READs and atomics (9.7.3.1, 11.2.4.2).
bool Requester::may_start(const Entry& entry) const {
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

bool Requester::start(const Entry& entry) {
  if (!may_start(entry)) return false;
  if (const WcStatus status = validate(entry.wqe); status != WcStatus::kSuccess) {
    local_error_ = LocalError{window_.cursor(), status};
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

// Asking costs the peer a packet, so not every message asks (IBTA 9.7.5.1.2 leaves it to the requester): those whose
// completion somebody waits for do, long messages now and then, and the last posted one if no answer is under way.
bool Requester::want_ack(const Entry& entry, uint32_t n, uint32_t psns) const {
  if (since_ack_request_ + psns >= ack_interval() || window_.in_flight() + psns >= qp_.window || beyond_credits(entry))
    return true;
  if (n + psns != entry.progress.psn_count) return false;
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

// SPDX-License-Identifier: BSD-2-Clause
// What the requester does with responses and timers.
#include <cstring>

#include "engine/transport/common/long_packet.h"
#include "engine/transport/common/run_trial.h"
#include "engine/transport/common/send_completion.h"
#include "engine/transport/common/sge_cursor.h"
#include "engine/transport/reliable/requester.h"

namespace uroce::transport {

using io::SendReason;
using queue::WcStatus;
using queue::WrOpcode;
using Decision = LossRecovery::Decision;

Outcome Requester::on_response(const wire::Packet& packet, Time now) {
  if (const uint32_t arrived = arrived_in_part(packet, window_.unacknowledged(), qp_.attr.path_mtu)) {
    return on_response(without_first(packet, arrived, qp_.attr.path_mtu), now);
  }
  if (!window_.covers(packet.bth.psn) && !refuses_oldest(packet)) {
    const bool past = wire::Psn::distance(packet.bth.psn, window_.unacknowledged()) > 0;
    if (past) on_answered_twice(packet, now);
    qp_.counters.add(past ? Counter::kDropStaleResponse : Counter::kDropUnsentPsn);
    return Outcome::kGoesOn;
  }
  // Also those that come out of turn say how many receive requests there are.
  const bool ack = packet.info->has_aeth && packet.aeth.kind() == wire::AethKind::kAck;
  if (ack) on_credits(packet.aeth);
  switch (packet.info->operation) {
    case wire::Operation::kAcknowledge:
      return on_acknowledge(packet, now);
    case wire::Operation::kReadResponse:
      if (ack || !packet.info->has_aeth) return on_read_response(packet, now);
      break;
    case wire::Operation::kAtomicAcknowledge:
      if (ack) return on_atomic_response(packet, now);
      break;
    default:
      return Outcome::kGoesOn;
  }
  qp_.counters.add(Counter::kDropReservedSyndrome);
  return Outcome::kGoesOn;
}

// The newest word counts: a limit never moves back, so older ones are late.
void Requester::on_credits(wire::Aeth aeth) {
  const uint32_t credits = wire::credit_count(aeth.value());
  if (credits == wire::kNoCredits) return credit_limit_.reset();
  const wire::Msn limit(aeth.msn.value() + credits);
  if (!credit_limit_ || wire::Msn::distance(*credit_limit_, limit) > 0) credit_limit_ = limit;
}

void Requester::on_answered_twice(const wire::Packet& packet, Time now) {
  if (packet.info->has_aeth && packet.aeth.kind() != wire::AethKind::kAck) return;  // a refusal, late
  const bool of_read = packet.info->operation == wire::Operation::kReadResponse;
  recovery_.on_spurious(of_read ? packet.psns : 0, window_.idle(), now);
}

// --- acknowledgements -----------------------------------------------------------------------------------------------

Outcome Requester::on_acknowledge(const wire::Packet& packet, Time now) {
  const wire::Psn psn = packet.bth.psn;
  const uint8_t value = packet.aeth.syndrome & 31;
  switch (packet.aeth.kind()) {
    case wire::AethKind::kAck:
      qp_.counters.add(Counter::kRxAcks);
      return acknowledge_before(psn + 1, now).value_or(Outcome::kGoesOn);
    case wire::AethKind::kRnrNak:
      if (const auto blocked = acknowledge_before(psn, now)) return *blocked;
      return carry_out(recovery_.on_rnr_nak(value, now), WcStatus::kRnrRetryExceeded);
    case wire::AethKind::kNak:
      return on_nak(psn, value, now);
    default:
      qp_.counters.add(Counter::kDropReservedSyndrome);
      return Outcome::kGoesOn;
  }
}

Outcome Requester::on_nak(wire::Psn psn, uint8_t code, Time now) {
  const auto nak = static_cast<wire::NakCode>(code);
  if (code > static_cast<uint8_t>(wire::NakCode::kInvalidRdRequest)) {
    qp_.counters.add(Counter::kDropReservedSyndrome);
    return Outcome::kGoesOn;
  }
  if (nak == wire::NakCode::kPsnSequenceError) {
    if (const auto blocked = acknowledge_before(psn, now)) return *blocked;
    qp_.counters.add(Counter::kRxPsnNaks);
    return carry_out(recovery_.on_loss(SendReason::kPsnNak, now));
  }
  if (!belongs_to_oldest(psn) && advance_to(psn, now) == Advance::kFailed) return Outcome::kFailed;
  if (!belongs_to_oldest(psn)) {  // an earlier READ or atomic is not answered: asks for it again
    return acknowledge_before(psn, now).value_or(Outcome::kGoesOn);
  }
  qp_.counters.add(Counter::kRxFatalNaks);
  switch (nak) {
    case wire::NakCode::kRemoteAccessError:
      return fail(WcStatus::kRemoteAccessError);
    case wire::NakCode::kRemoteOperationalError:
      return fail(WcStatus::kRemoteOperationError);
    default:
      return fail(WcStatus::kRemoteInvalidRequestError);
  }
}

// Completes SENDs and WRITEs up to `psn` (exclusive), or to a READ or atomic without response that stands in the way.
Requester::Advance Requester::advance_to(wire::Psn psn, Time now) {
  const uint32_t target = window_.offset(psn);
  uint32_t done = 0;
  Advance result = Advance::kDone;
  while (done < target && result == Advance::kDone) {
    const queue::SendProgress& oldest = oldest_entry().progress;
    const uint32_t end = window_.offset(wire::Psn(oldest.first_psn) + oldest.psn_count);
    if (oldest_awaits_response()) {
      result = Advance::kBlocked;
    } else if (end > target) {
      done = target;
    } else {
      done = end;
      if (complete(WcStatus::kSuccess) == Outcome::kFailed) result = Advance::kFailed;
    }
  }
  if (done > 0) {
    window_.acknowledge_before(window_.unacknowledged() + done);
    recovery_.on_progress(window_, now);
  }
  return result;
}

// The same; that a response is missing is an implied NAK (IBTA 9.7.5.1.1). None: all are complete, and there is more to
// look at.
std::optional<Outcome> Requester::acknowledge_before(wire::Psn psn, Time now) {
  switch (advance_to(psn, now)) {
    case Advance::kFailed:
      return Outcome::kFailed;
    case Advance::kBlocked:
      return on_overtaken(now);
    default:
      return std::nullopt;
  }
}

Outcome Requester::on_overtaken(Time now) {
  qp_.counters.add(Counter::kRxImpliedNaks);
  return carry_out(recovery_.on_overtaken(now));
}

// --- the oldest WQE -------------------------------------------------------------------------------------------------

// The oldest message, a READ, will not be answered any further: the peer's QP has failed. The NAK may name a response
// that is missing no more, when an early retransmission made the peer begin anew, or one behind others that were lost.
bool Requester::refuses_oldest(const wire::Packet& packet) const {
  return packet.info->operation == wire::Operation::kAcknowledge && packet.aeth.kind() == wire::AethKind::kNak &&
         packet.aeth.value() != static_cast<uint8_t>(wire::NakCode::kPsnSequenceError) && !window_.idle() &&
         oldest_awaits_response() && belongs_to_oldest(packet.bth.psn);
}

bool Requester::belongs_to_oldest(wire::Psn psn) const {
  const queue::SendProgress& oldest = oldest_entry().progress;
  return psn.offset_from(wire::Psn(oldest.first_psn)) < oldest.psn_count;
}

bool Requester::oldest_awaits_response() const {
  return awaits_response(oldest_entry().wqe.opcode);
}

// The oldest message, if it is one: whenever it is asked for again the peer sends all that is left of it.
std::optional<LossRecovery::LongRead> Requester::oldest_long_read() const {
  const Entry oldest = oldest_entry();
  const uint32_t left = oldest.progress.psn_count - oldest.progress.responses;
  if (oldest.wqe.opcode != WrOpcode::kRdmaRead || left <= kWindow) return std::nullopt;
  return LossRecovery::LongRead{left, wire::Psn(oldest.progress.first_psn) + oldest.progress.psn_count};
}

// --- responses ------------------------------------------------------------------------------------------------------

Outcome Requester::on_read_response(const wire::Packet& packet, Time now) {
  // Acknowledges the SENDs and WRITEs before the READ; a READ or atomic in between has lost its response.
  while (!oldest_awaits_response()) {
    const queue::SendProgress& oldest = oldest_entry().progress;
    const wire::Psn end = wire::Psn(oldest.first_psn) + oldest.psn_count;
    if (window_.offset(end) > window_.offset(packet.bth.psn)) {  // the PSN is a SEND's or WRITE's
      qp_.counters.add(Counter::kDropUnsolicitedResponse);
      return Outcome::kGoesOn;
    }
    if (advance_to(end, now) == Advance::kFailed) return Outcome::kFailed;
  }
  if (!belongs_to_oldest(packet.bth.psn)) return on_overtaken(now);
  if (packet.bth.psn != window_.unacknowledged()) {
    qp_.counters.add(Counter::kRxImpliedNaks);
    return carry_out(recovery_.on_loss(SendReason::kImpliedNak, now));
  }
  switch (oldest_entry().wqe.opcode) {
    case WrOpcode::kRdmaRead:
      return on_read_data(packet, now);
    case WrOpcode::kFlush:
    case WrOpcode::kAtomicWrite:
      return on_bare_response(packet, now);
    default:
      return fail(WcStatus::kBadResponseError);
  }
}

Outcome Requester::on_read_data(const wire::Packet& packet, Time now) {
  const Entry entry = oldest_entry();
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint32_t n = entry.progress.responses;
  if (packet.psns > entry.progress.psn_count - n) return fail(WcStatus::kBadResponseError);
  const bool last = n + packet.psns == entry.progress.psn_count;
  const uint32_t expected = last ? entry.wqe.length - n * mtu : packet.psns * mtu;
  if (packet.info->last != last) return fail(WcStatus::kBadResponseError);
  if (packet.payload.size() != expected) return fail(WcStatus::kLocalLengthError);
  if (!scatter(qp_, qp_.pd, entry.sges, n * mtu, packet.payload)) return fail(WcStatus::kLocalProtectionError);
  entry.progress.responses += packet.psns;
  return answered(packet.bth.psn + (packet.psns - 1), last, now);
}

bool Requester::take_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now) {
  const uint32_t mtu = qp_.attr.path_mtu;
  const auto count = static_cast<uint32_t>(payloads.size());
  const bool next = previous.bth.psn + 1 == window_.unacknowledged() && count <= window_.outstanding();
  if (!next || !oldest_awaits_response() || previous.payload.size() != mtu) return false;
  const Entry entry = oldest_entry();
  const uint32_t n = entry.progress.responses;
  // The last one is none of them.
  if (entry.wqe.opcode != WrOpcode::kRdmaRead || !belongs_to_oldest(previous.bth.psn + 1)) return false;
  if (count >= entry.progress.psn_count - n) return false;
  if (!scatter_pieces(qp_, qp_.pd, entry.sges, n * mtu, payloads, mtu)) return false;
  entry.progress.responses += count;
  static_cast<void>(answered(previous.bth.psn + count, false, now));
  return true;
}

// FLUSH and ATOMIC WRITE are answered by a READ response without data (IBTA A19).
Outcome Requester::on_bare_response(const wire::Packet& packet, Time now) {
  if (!packet.info->first || !packet.info->last) return fail(WcStatus::kBadResponseError);
  if (!packet.payload.empty()) return fail(WcStatus::kLocalLengthError);
  return answered(packet.bth.psn, true, now);
}

Outcome Requester::on_atomic_response(const wire::Packet& packet, Time now) {
  if (const auto blocked = acknowledge_before(packet.bth.psn, now)) return *blocked;
  const Entry entry = oldest_entry();
  if (entry.wqe.opcode != WrOpcode::kCompareSwap && entry.wqe.opcode != WrOpcode::kFetchAdd) {
    return fail(WcStatus::kBadResponseError);
  }
  uint8_t original[8];  // host order in memory, as verbs defines it
  std::memcpy(original, &packet.atomic_ack_eth.original, sizeof(original));
  if (!scatter(qp_, qp_.pd, entry.sges, 0, original)) return fail(WcStatus::kLocalProtectionError);
  return answered(packet.bth.psn, true, now);
}

// The response with PSN `psn`, which is the oldest, was taken.
Outcome Requester::answered(wire::Psn psn, bool message_done, Time now) {
  const Outcome outcome = message_done ? complete(WcStatus::kSuccess) : Outcome::kGoesOn;
  window_.acknowledge_before(psn + 1);
  recovery_.on_progress(window_, now);
  return outcome;
}

// --- timers and endings ---------------------------------------------------------------------------------------------

Outcome Requester::on_timer(Time now) {
  return window_.idle() ? Outcome::kGoesOn : carry_out(recovery_.on_timer(oldest_long_read(), now));
}

Outcome Requester::carry_out(Decision decision, WcStatus giving_up) {
  switch (decision) {
    case Decision::kRewind:
      window_.rewind();
      tell_of_loss();
      try_runs();
      break;
    case Decision::kProbe:
      recovery_.begin_probe(window_.unacknowledged(),
                            window_.in_flight() > 0 ? newest_in_flight().next : window_.unacknowledged());
      break;
    case Decision::kGiveUp:
      return fail(giving_up);
    case Decision::kNothing:
      break;
  }
  return Outcome::kGoesOn;
}

// Congestion control hears of what the peer or the transport timer says, not of what is only probed.
void Requester::tell_of_loss() {
  const bool lost = recovery_.cause() == SendReason::kPsnNak || recovery_.cause() == SendReason::kTimeout;
  if (lost && qp_.congestion != nullptr && qp_.congestion->on_lost(qp_.now)) qp_.counters.add(Counter::kRateCuts);
}

// The receiver that has no receive request, and says so, gets packets.
void Requester::try_runs() {
  const auto progress = static_cast<uint32_t>(wire::Psn::distance(went_back_to_, window_.unacknowledged()));
  went_back_to_ = window_.unacknowledged();
  if (recovery_.cause() == SendReason::kRnrNak || qp_.run_trial == nullptr) return;
  if (qp_.run_trial->on_went_back(progress, qp_.now)) qp_.counters.add(Counter::kRunsPaused);
}

// The oldest WQE ends.
Outcome Requester::complete(WcStatus status) {
  const uint32_t index = qp_.sq.tail();
  const Entry entry = qp_.sq.entry(index);
  if (entry.progress.started && awaits_response(entry.wqe.opcode)) --reads_outstanding_;
  window_.completed(index);
  // If it had failed here as well: it was acknowledged all the same.
  if (local_error_ && local_error_->index == index) local_error_.reset();
  return complete_oldest(qp_, status);
}

// ... with an error, and with it the QP (IBTA 10.3.1.2 and table 94).
Outcome Requester::fail(WcStatus status) {
  static_cast<void>(complete(status));
  return Outcome::kFailed;
}

Outcome Requester::settle_local_error() {
  const bool due = local_error_ && local_error_->index == qp_.sq.tail();
  return due ? fail(local_error_->status) : Outcome::kGoesOn;
}

void Requester::flush() {
  recovery_.stop();
  while (qp_.sq.tail() != qp_.sq.head()) {
    if (qp_.sq.tail() == qp_.sq.fetched()) qp_.sq.fetch();
    static_cast<void>(complete(WcStatus::kFlushError));
  }
}

}  // namespace uroce::transport

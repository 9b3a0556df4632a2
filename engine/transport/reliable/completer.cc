#include "engine/transport/reliable/completer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/transport/common/send_completion.h"
#include "engine/transport/common/sge_cursor.h"
#include "wire/aeth.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::WcStatus;
using queue::WrOpcode;

void Completer::reset() {
  timer_.stop();
  timer_.forget();
  retries_ = rnr_retries_ = 0;
  recovering_ = overtaken_ = timing_ = losing_ = false;
}

void Completer::on_sent(wire::Psn psn, bool was_idle, bool again) {
  if (was_idle) timer_.restart(qp_.now, qp_.attr.timeout);
  // Once the ones before it are acknowledged, the packet behind one that asked for it is the oldest, and an early probe
  // would take the measurement away, so another one is timed.
  if (!timing_ && !again && !requester_.follows_ack_request()) {
    timing_ = true;
    timed_psn_ = psn;  // of a READ: its first response
    timed_at_ = qp_.now;
  }
}

Time Completer::deadline(Time now) const {
  if (window_.idle()) return kNever;
  // While an RNR NAK is being waited out the peer owes nothing.
  return now < requester_.resume_at() ? requester_.resume_at() : timer_.deadline();
}

void Completer::on_timer() {
  if (window_.idle() || qp_.now < requester_.resume_at()) return;
  if (timer_.expired(qp_.now)) {
    qp_.counters.add(Counter::kTimeouts);
    recovering_ = overtaken_ = false;
    timer_.restart(qp_.now, qp_.attr.timeout);
    retry(RetryCause::kTimeout);
  } else if (timer_.probe_due(qp_.now)) {
    if (qp_.probe_budget != nullptr && !qp_.probe_budget->take(qp_.now)) {
      qp_.counters.add(Counter::kProbesPutOff);
      timer_.put_off(qp_.now, qp_.qpn.value());
      return;
    }
    qp_.counters.add(Counter::kProbes);
    recovering_ = false;
    timer_.probed(qp_.now, oldest_is_long_read());
    if (losing_) {
      timing_ = false;
      window_.rewind(io::SendReason::kProbe);
    } else {
      if (timing_ && requester_.probes(timed_psn_)) timing_ = false;
      requester_.probe();
    }
  }
}

// Whenever it is asked for again the peer sends all that is left of it.
bool Completer::oldest_is_long_read() const {
  const SendQueue::Entry oldest = qp_.sq.entry(qp_.sq.tail());
  return oldest.wqe.opcode == WrOpcode::kRdmaRead &&
         oldest.progress.psn_count - oldest.progress.responses > Requester::kWindow;
}

void Completer::on_response(const wire::Packet& packet) {
  if (!window_.covers(packet.bth.psn) && !refuses_oldest(packet)) {
    const bool past = wire::Psn::distance(packet.bth.psn, window_.unacknowledged()) > 0;
    if (past) on_answered_twice(packet);
    qp_.counters.add(past ? Counter::kDropStaleResponse : Counter::kDropUnsentPsn);
    return;
  }
  // Also those that come out of turn say how many receive requests there are.
  if (packet.info->has_aeth && packet.aeth.kind() == wire::AethKind::kAck) requester_.on_credits(packet.aeth);
  switch (packet.info->operation) {
    case wire::Operation::kAcknowledge:
      return on_acknowledge(packet);
    case wire::Operation::kReadResponse:
      return on_read_response(packet);
    case wire::Operation::kAtomicAcknowledge:
      return on_atomic_response(packet);
    default:
      return;
  }
}

void Completer::on_answered_twice(const wire::Packet& packet) {
  if (packet.info->has_aeth && packet.aeth.kind() != wire::AethKind::kAck) return;  // a refusal, late
  const bool of_read = packet.info->operation == wire::Operation::kReadResponse;
  if (timer_.doubted_wrongly()) {
    losing_ = false;
    if (of_read) timer_.gain_patience();
  }
  // The peer is at a READ that was asked for once more than necessary. It comes to what is waited for after that, and
  // the more it is reminded of it the later.
  if (of_read && !window_.idle() && qp_.now >= requester_.resume_at()) timer_.postpone(qp_.now, qp_.attr.timeout);
}

void Completer::on_acknowledge(const wire::Packet& packet) {
  const uint8_t value = packet.aeth.syndrome & 31;
  switch (packet.aeth.kind()) {
    case wire::AethKind::kAck:
      qp_.counters.add(Counter::kRxAcks);
      acknowledge_before(packet.bth.psn + 1);
      return;
    case wire::AethKind::kRnrNak:
      return on_rnr_nak(packet.bth.psn, value);
    case wire::AethKind::kNak:
      return on_nak(packet.bth.psn, value);
    default:
      qp_.counters.add(Counter::kDropReservedSyndrome);
      return;
  }
}

// Completes SENDs and WRITEs up to `psn` (exclusive). False when a READ or atomic without response stands in the way.
bool Completer::advance_to(wire::Psn psn) {
  const uint32_t target = window_.offset(psn);
  if (target == 0) return true;
  uint32_t done = 0;
  bool blocked = false;
  while (done < target) {
    const SendQueue::Entry entry = qp_.sq.entry(qp_.sq.tail());
    const uint32_t end = window_.offset(wire::Psn(entry.progress.first_psn) + entry.progress.psn_count);
    if (oldest_awaits_response()) {
      blocked = true;
      break;
    }
    if (end > target) {
      done = target;
      break;
    }
    done = end;
    complete(WcStatus::kSuccess);
    if (qp_.failed) break;
  }
  if (done > 0) {
    window_.acknowledge_before(window_.unacknowledged() + done);
    progress();
  }
  return !blocked;
}

// The same; that a response is missing is an implied NAK (IBTA 9.7.5.1.1).
bool Completer::acknowledge_before(wire::Psn psn) {
  if (advance_to(psn)) return true;
  on_overtaken();
  return false;
}

// An answer to something later came. It is news once: a peer that acknowledges duplicates with the last PSN that it has
// executed (rxe) says so in front of every answer that it repeats, and each would spend a retry.
void Completer::on_overtaken() {
  qp_.counters.add(Counter::kRxImpliedNaks);
  if (!overtaken_) overtaken_ = retry(RetryCause::kImpliedNak);
}

// The oldest message, a READ, will not be answered any further: the peer's QP has failed. The NAK may name a response
// that is missing no more, when an early retransmission made the peer begin anew, or one behind others that were lost.
bool Completer::refuses_oldest(const wire::Packet& packet) const {
  return packet.info->operation == wire::Operation::kAcknowledge && packet.aeth.kind() == wire::AethKind::kNak &&
         packet.aeth.value() != static_cast<uint8_t>(wire::NakCode::kPsnSequenceError) && !window_.idle() &&
         oldest_awaits_response() && belongs_to_oldest(packet.bth.psn);
}

bool Completer::belongs_to_oldest(wire::Psn psn) const {
  const SendQueue::Entry entry = qp_.sq.entry(qp_.sq.tail());
  return ((psn.value() - entry.progress.first_psn) & wire::kMask24) < entry.progress.psn_count;
}

bool Completer::oldest_awaits_response() const {
  return awaits_response(qp_.sq.entry(qp_.sq.tail()).wqe.opcode);
}

void Completer::on_nak(wire::Psn psn, uint8_t code) {
  const auto nak = static_cast<wire::NakCode>(code);
  if (code > static_cast<uint8_t>(wire::NakCode::kInvalidRdRequest)) {
    qp_.counters.add(Counter::kDropReservedSyndrome);
    return;
  }
  if (nak == wire::NakCode::kPsnSequenceError) {
    if (!acknowledge_before(psn) || qp_.failed) return;
    qp_.counters.add(Counter::kRxPsnNaks);
    retry(RetryCause::kPsnNak);
    return;
  }
  if (!belongs_to_oldest(psn)) advance_to(psn);
  if (qp_.failed) return;
  if (!belongs_to_oldest(psn)) {
    acknowledge_before(psn);  // an earlier READ or atomic is not answered: asks for it again
    return;
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

void Completer::on_rnr_nak(wire::Psn psn, uint8_t code) {
  constexpr uint8_t kInfinite = 7;
  if (!acknowledge_before(psn) || qp_.failed) return;
  // One RNR NAK per wait: duplicates of it neither extend the wait nor spend the budget.
  if (qp_.now < requester_.resume_at()) return;
  qp_.counters.add(Counter::kRxRnrNaks);
  if (qp_.attr.rnr_retry != kInfinite && rnr_retries_++ >= qp_.attr.rnr_retry) {
    return fail(WcStatus::kRnrRetryExceeded);
  }
  timing_ = false;
  // The packet has arrived: that there is no receive request for it has a budget of its own. (rxe refuses with PSN NAKs
  // what follows it, and each attempt would spend a retry.)
  retries_ = 0;
  recovering_ = overtaken_ = false;
  const Time resume = qp_.now + wire::rnr_delay(code);
  requester_.wait_until(resume);
  timer_.restart(resume, qp_.attr.timeout);
  window_.rewind(io::SendReason::kRnrNak);
}

// Goes back to the oldest unacknowledged PSN. NAKs of one gap, however many, go back once; false: not this time.
bool Completer::retry(RetryCause cause) {
  if (cause != RetryCause::kTimeout) {
    losing_ = true;
    timer_.lose_patience();
  }
  if (recovering_ || qp_.now < requester_.resume_at()) return false;
  if (retries_ >= qp_.attr.retry_count) {
    fail(WcStatus::kRetryExceeded);
    return true;
  }
  ++retries_;
  recovering_ = cause != RetryCause::kTimeout;
  timing_ = false;
  window_.rewind(cause == RetryCause::kTimeout      ? io::SendReason::kTimeout
                 : cause == RetryCause::kImpliedNak ? io::SendReason::kImpliedNak
                                                    : io::SendReason::kPsnNak);
  return true;
}

void Completer::progress() {
  requester_.wait_until(Time{});  // whatever an RNR NAK asked for, the peer has taken the packet
  retries_ = rnr_retries_ = 0;
  recovering_ = overtaken_ = false;
  if (timing_ && window_.offset(timed_psn_) >= wire::kPsnHalf) {  // acknowledged: lies behind the window now
    timing_ = false;
    timer_.sample(qp_.now - timed_at_);
  }
  if (window_.idle()) {
    timer_.stop();
  } else {
    timer_.restart(qp_.now, qp_.attr.timeout);
  }
}

void Completer::on_read_response(const wire::Packet& packet) {
  if (packet.info->has_aeth && packet.aeth.kind() != wire::AethKind::kAck) {
    qp_.counters.add(Counter::kDropReservedSyndrome);
    return;
  }
  // Acknowledges the SENDs and WRITEs before the READ; a READ or atomic in between has lost its response.
  while (!oldest_awaits_response()) {
    const SendQueue::Entry entry = qp_.sq.entry(qp_.sq.tail());
    const wire::Psn end = wire::Psn(entry.progress.first_psn) + entry.progress.psn_count;
    if (window_.offset(end) > window_.offset(packet.bth.psn)) {  // the PSN is a SEND's or WRITE's
      qp_.counters.add(Counter::kDropUnsolicitedResponse);
      return;
    }
    acknowledge_before(end);
    if (qp_.failed) return;
  }
  const SendQueue::Entry entry = qp_.sq.entry(qp_.sq.tail());
  if (!belongs_to_oldest(packet.bth.psn)) return on_overtaken();
  if (packet.bth.psn != window_.unacknowledged()) {
    qp_.counters.add(Counter::kRxImpliedNaks);
    retry(RetryCause::kImpliedNak);
    return;
  }
  if (entry.wqe.opcode == WrOpcode::kFlush || entry.wqe.opcode == WrOpcode::kAtomicWrite) {
    return on_bare_response(packet);
  }
  if (entry.wqe.opcode != WrOpcode::kRdmaRead) return fail(WcStatus::kBadResponseError);

  const uint32_t mtu = qp_.attr.path_mtu;
  const uint32_t n = entry.progress.responses;
  const bool last = n + 1 == entry.progress.psn_count;
  const uint32_t expected = last ? entry.wqe.length - n * mtu : mtu;
  if (packet.info->last != last) return fail(WcStatus::kBadResponseError);
  if (packet.payload.size() != expected) return fail(WcStatus::kLocalLengthError);
  if (!scatter(qp_, qp_.pd, entry.sges, n * mtu, packet.payload)) return fail(WcStatus::kLocalProtectionError);
  ++entry.progress.responses;
  if (last) complete(WcStatus::kSuccess);
  window_.acknowledge_before(packet.bth.psn + 1);
  progress();
}

// FLUSH and ATOMIC WRITE are answered by a READ response without data (IBTA A19).
void Completer::on_bare_response(const wire::Packet& packet) {
  if (!packet.info->first || !packet.info->last) return fail(WcStatus::kBadResponseError);
  if (!packet.payload.empty()) return fail(WcStatus::kLocalLengthError);
  complete(WcStatus::kSuccess);
  window_.acknowledge_before(packet.bth.psn + 1);
  progress();
}

void Completer::on_atomic_response(const wire::Packet& packet) {
  if (packet.aeth.kind() != wire::AethKind::kAck) {
    qp_.counters.add(Counter::kDropReservedSyndrome);
    return;
  }
  if (!acknowledge_before(packet.bth.psn) || qp_.failed) return;
  const SendQueue::Entry entry = qp_.sq.entry(qp_.sq.tail());
  if (entry.wqe.opcode != WrOpcode::kCompareSwap && entry.wqe.opcode != WrOpcode::kFetchAdd) {
    return fail(WcStatus::kBadResponseError);
  }
  uint8_t original[8];  // host order in memory, as verbs defines it
  std::memcpy(original, &packet.atomic_ack_eth.original, sizeof(original));
  if (!scatter(qp_, qp_.pd, entry.sges, 0, original)) return fail(WcStatus::kLocalProtectionError);
  complete(WcStatus::kSuccess);
  window_.acknowledge_before(packet.bth.psn + 1);
  progress();
}

void Completer::complete(WcStatus status) {
  const uint32_t index = qp_.sq.tail();
  const SendQueue::Entry entry = qp_.sq.entry(index);
  if (entry.progress.started && awaits_response(entry.wqe.opcode)) requester_.read_or_atomic_completed();
  window_.completed(index);
  requester_.completed(index);
  complete_oldest(qp_, status);
}

// The oldest WQE ends with an error, and with it the QP (IBTA 10.3.1.2 and table 94).
void Completer::fail(WcStatus status) {
  complete(status);
  qp_.failed = true;
}

void Completer::settle_local_error() {
  const auto& error = requester_.local_error();
  if (error && error->index == qp_.sq.tail()) fail(error->status);
}

void Completer::flush() {
  timer_.stop();
  while (qp_.sq.tail() != qp_.sq.head()) {
    if (qp_.sq.tail() == qp_.sq.fetched()) qp_.sq.fetch();
    complete(WcStatus::kFlushError);
  }
}

}  // namespace uroce::transport

// SPDX-License-Identifier: GPL-2.0-or-later
// RequestTrack: what the responder says.
#include <algorithm>

#include "dissector/analysis/request_track.h"

namespace uroce::dissector {
namespace {

using wire::AethKind;
using wire::NakCode;
using wire::Operation;

constexpr int64_t kCopyWithin = 50'000;  // ns

Finding finding_of(uint8_t nak_code) {
  switch (static_cast<NakCode>(nak_code)) {
    case NakCode::kPsnSequenceError:
      return Finding::kNakSequence;
    case NakCode::kInvalidRequest:
      return Finding::kNakInvalidRequest;
    case NakCode::kRemoteAccessError:
      return Finding::kNakRemoteAccess;
    case NakCode::kRemoteOperationalError:
      return Finding::kNakRemoteOperational;
    default:
      return Finding::kNakOther;
  }
}

}  // namespace

void RequestTrack::on_answer(const Subject& subject, Store& store) {
  if (!started_) return;
  const int64_t e = extend(subject.headers.bth.psn);
  PacketRecord& record = subject.record;
  record.has_psn = true;
  record.relative_psn = static_cast<int32_t>(e - first_);
  if (is_copy_of_answer(subject)) {
    record.findings.add(Finding::kDuplicatePacket);
    wait_again(subject, e);
  } else if (subject.headers.info->operation == Operation::kAcknowledge) {
    on_acknowledge(subject, e, store);
  } else {
    on_response(subject, e, store);
  }
  answered_ = true;
  note_flight(record);
  trim();
}

void RequestTrack::on_acknowledge(const Subject& subject, int64_t psn, Store& store) {
  const wire::Aeth& aeth = subject.headers.aeth;
  note_answer_time(subject, psn, store);
  if (psn >= next_) subject.record.findings.add(Finding::kAckUnseen);
  if (aeth.kind() == AethKind::kAck) return on_positive(subject, psn, store);
  // It acknowledges all in front of it. Where READs are missing there, their requester asks for them at once.
  Sent* const blocked = advance(subject, psn - 1, store);
  note_implied_nak(subject, blocked);
  if (aeth.kind() == AethKind::kRnrNak) {
    subject.record.findings.add(Finding::kRnrNak);
    if (blocked == nullptr) begin_rnr_wait(subject, psn);
  } else {
    on_nak(subject, psn);
  }
  end_recovery(subject);
}

void RequestTrack::on_positive(const Subject& subject, int64_t psn, Store& store) {
  if (subject.headers.aeth.value() == 0) subject.record.findings.add(Finding::kZeroCredits);
  const int64_t before = unacked_;
  Sent* const blocked = advance(subject, psn, store);
  note_implied_nak(subject, blocked);
  if (unacked_ == before && psn < unacked_) {
    subject.record.findings.add(subject.late() ? Finding::kOutOfOrder : Finding::kDuplicateAck);
  }
  end_recovery(subject);
}

void RequestTrack::begin_rnr_wait(const Subject& subject, int64_t psn) {
  // Of several without an attempt in between the first one counts: a requester that waits already need not begin anew.
  if (psn < unacked_ || (rnr_ && rnr_->psn == psn)) return;
  rnr_ = Rnr{psn, subject.now(), wire::rnr_delay(subject.headers.aeth.value()).count(), subject.index};
}

// A requester does not know that an RNR NAK is a copy, if it has sent again since. Behind a response that it misses it
// drops that too.
void RequestTrack::wait_again(const Subject& subject, int64_t psn) {
  const bool rnr =
      subject.headers.info->operation == Operation::kAcknowledge && subject.headers.aeth.kind() == AethKind::kRnrNak;
  if (rnr && psn == unacked_) begin_rnr_wait(subject, psn);
}

void RequestTrack::on_nak(const Subject& subject, int64_t psn) {
  const wire::Aeth& aeth = subject.headers.aeth;
  const Finding finding = aeth.kind() == AethKind::kNak ? finding_of(aeth.value()) : Finding::kNakOther;
  subject.record.findings.add(finding);
  // Of a connection whose very first requests were lost in front of the capture this is the first one hears.
  const bool first_sign = !answered_ || (acked_ == 0 && unacked_ == first_);
  if (first_sign && psn < unacked_ && unacked_ - psn < kFarAway) unacked_ = psn;
  if (finding != Finding::kNakSequence || psn < unacked_) return;
  nak_psn_ = psn;
  nak_time_ = subject.now();
  begin_recovery(subject.now());
}

// A READ response, an atomic's result, or what answers FLUSH and ATOMIC_WRITE.
void RequestTrack::on_response(const Subject& subject, int64_t psn, Store& store) {
  note_payload(subject, store);
  end_last_read(subject, psn);
  Sent* const sent = find(psn);
  if (sent == nullptr || !sent->needs_response()) {
    if (psn < first_) return;  // nobody knows what was in front of the capture
    subject.record.findings.add(psn < unacked_ && psn < next_ ? Finding::kResponseReplay : Finding::kAckUnseen);
    return;
  }
  subject.record.related = store.packets[sent->record].frame;
  subject.record.message = sent->message;
  if (sent->span_guessed && subject.headers.info->last && subject.headers.payload_size != 0) {
    sent->span = static_cast<uint32_t>(psn + 1 - sent->psn);  // what comes behind is another one's
    sent->span_guessed = false;
    settle_gap(*sent, store);
  }
  check_response(subject, *sent, psn);
  // It says that all in front of its request was executed.
  note_implied_nak(subject, advance(subject, sent->psn - 1, store));
  Sent& again = *find(psn);
  place_response(subject, again, psn);
  if (again.answered() && again.psn <= unacked_) {
    subject.record.answer_time = subject.now() - again.last_time;
    advance(subject, again.end() - 1, store);
  }
  end_recovery(subject);
}

// While the path MTU is not known nobody knows where the last READ ends, until its last response comes.
void RequestTrack::end_last_read(const Subject& subject, int64_t psn) {
  if (sent_.empty() || sent_.back().span_known || !subject.headers.info->last) return;
  Sent& read = sent_.back();
  if (psn < next_ || psn - read.psn >= kFarAway || read.operation != Operation::kReadRequest) return;
  read.span = static_cast<uint32_t>(psn + 1 - read.psn);
  read.span_known = true;
  next_ = read.end();
}

// Among the responses to its request: the next one, one again, or behind a gap. What the requester misses is
// sent.expected; it drops what comes behind that until it is there.
void RequestTrack::place_response(const Subject& subject, Sent& sent, int64_t psn) {
  Findings& findings = subject.record.findings;
  if (psn > sent.seen) {
    findings.add(Finding::kResponseGap);
    subject.record.missing = static_cast<uint32_t>(psn - sent.seen);
    implied_psn_ = sent.expected;
    begin_recovery(subject.now());
  } else if (psn < sent.seen) {
    findings.add(subject.late() ? Finding::kOutOfOrder : Finding::kResponseReplay);
  }
  if (psn == sent.expected) ++sent.expected;
  sent.seen = std::max(sent.seen, psn + 1);
}

void RequestTrack::check_response(const Subject& subject, const Sent& sent, int64_t psn) {
  const wire::OpcodeInfo& info = *subject.headers.info;
  Findings& findings = subject.record.findings;
  const bool atomic = sent.operation == Operation::kCompareSwap || sent.operation == Operation::kFetchAdd;
  if (atomic != (info.operation == Operation::kAtomicAcknowledge)) return findings.add(Finding::kOpcodeSequence);
  if (atomic) return;
  const uint32_t size = subject.headers.payload_size;
  if (sent.operation != Operation::kReadRequest) {
    if (size != 0) findings.add(Finding::kLength);
    return;
  }
  if (!sent.span_known || sent.span_guessed) return;
  const bool at_end = psn + 1 == sent.end();
  if (info.last != at_end) findings.add(Finding::kOpcodeSequence);
  if (path_mtu_ == 0) return;
  const uint32_t in_front = static_cast<uint32_t>(psn - sent.psn) * path_mtu_;
  const uint32_t wanted = at_end ? sent.length - std::min(sent.length, in_front) : path_mtu_;
  if (info.last == at_end && size != wanted) findings.add(Finding::kLength);
}

// Before it is known that the IDs count up, and so that the same one is the same packet, it has to come at once.
bool RequestTrack::is_copy_of_answer(const Subject& subject) {
  const Datagram& datagram = subject.datagram;
  const IpIds::Packet* const seen = subject.ip_ids.same(datagram, subject.headers.bth);
  if (seen == nullptr) return false;
  if (!subject.ip_ids.tell_packets(datagram) && !subject.ip_ids.begins(datagram, kCopyWithin)) return false;
  subject.record.related = seen->frame;
  return true;
}

// All up to `psn` is acknowledged, but READs and atomics only by their own responses: returns the one that stands in
// the way, or null.
RequestTrack::Sent* RequestTrack::advance(const Subject& subject, int64_t psn, Store& store) {
  psn = std::min(psn, next_ - 1);
  while (acked_ < sent_.size() && sent_[acked_].psn <= psn) {
    Sent& sent = sent_[acked_];
    if (sent.needs_response() && !sent.answered()) {
      unacked_ = std::max(unacked_, sent.expected);
      return &sent;
    }
    if (sent.end() > psn + 1) return nullptr;
    complete(subject, sent, store);
    ++acked_;
    unacked_ = std::max(unacked_, sent.end());
  }
  unacked_ = std::max(unacked_, psn + 1);
  return nullptr;
}

void RequestTrack::complete(const Subject& subject, Sent& sent, Store& store) {
  bytes_in_flight_ -= std::min(bytes_in_flight_, sent.payload);
  if (sent.psn < answers_missed_below_) return;
  store.packets[sent.record].answer = store.packets[sent.last_record].answer = subject.datagram.frame;
  if (!sent.last || sent.message == kNone) return;
  MessageRecord& message = store.messages[sent.message];
  if (message.answer_frame != 0) return;  // a broken sender may end a message twice
  message.answer_frame = subject.datagram.frame;
  if (message.first_frame != 0) message.time = subject.now() - message.start;
  message.also = subject.record.completed;
  subject.record.completed = sent.message;
}

void RequestTrack::note_answer_time(const Subject& subject, int64_t psn, Store& store) {
  const Sent* const sent = find(psn);
  if (sent == nullptr) return;
  subject.record.related = store.packets[sent->record].frame;
  subject.record.message = sent->message;
  const int64_t time = subject.now() - sent->last_time;
  if (psn >= unacked_) subject.record.answer_time = time;
  // Of one that was sent twice nobody knows which was answered.
  if (sent->repeated || psn < unacked_ || sent->needs_response()) return;
  if (least_round_trip_ < 0 || time < least_round_trip_) least_round_trip_ = time;
}

// Once for each response that is missed.
void RequestTrack::note_implied_nak(const Subject& subject, const Sent* blocked) {
  if (blocked == nullptr || implied_psn_ == blocked->expected) return;
  implied_psn_ = blocked->expected;
  subject.record.findings.add(Finding::kImpliedNak);
  begin_recovery(subject.now());
}

void RequestTrack::end_recovery(const Subject& subject) {
  if (nak_psn_ && unacked_ > *nak_psn_) nak_psn_.reset();
  if (implied_psn_ && unacked_ > *implied_psn_) implied_psn_.reset();
  if (rnr_ && unacked_ > rnr_->psn) rnr_.reset();
  if (recovery_start_ < 0 || unacked_ < recovery_end_) return;
  subject.record.recovery = subject.now() - recovery_start_;
  subject.record.findings.add(Finding::kRecovered);
  recovery_start_ = -1;
}

}  // namespace uroce::dissector

// SPDX-License-Identifier: BSD-2-Clause
// The half of ResponderJudge that looks at what the host sends.
#include "oracle/responder_judge.h"

namespace uroce::oracle {
namespace {

using wire::AethKind;
using wire::Msn;
using wire::NakCode;
using wire::Operation;
using wire::Psn;

}  // namespace

void ResponderJudge::on_response(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  if (packet.info().has_aeth) judge_aeth(packet, context);
  if (!started_ && context.attributes.rq_psn) start(*context.attributes.rq_psn, true, context);
  if (!started_) return;  // to what was requested before
  const bool reports_gap = gap_ && gap_->psn == psn;
  if (spare_from_ && Psn::distance(expected_, psn) >= 0 && !reports_gap) take_spares(context);
  const wire::Aeth& aeth = packet.wire().aeth;
  if (learnt_from_ && Psn::distance(*learnt_from_, psn) < 0) {  // of what was requested before
    if (packet.info().has_aeth && aeth.kind() != AethKind::kAck) restart(psn);
    return;
  }
  if (packet.info().operation != Operation::kAcknowledge) {
    correct_span(packet, context);
    reads_.on_response(packet, context);
    settle_span(context, packet.info().last ? std::optional(psn + 1) : std::nullopt);
    if (packet.info().has_aeth) judge_msn(psn, aeth.msn, true, context);
    forget_answered(psn);
  } else if (aeth.kind() == AethKind::kAck) {
    on_ack(packet, context);
  } else if (aeth.kind() == AethKind::kRnrNak) {
    on_rnr_nak(packet, context);
  } else if (aeth.kind() == AethKind::kNak && aeth.value() == static_cast<uint8_t>(NakCode::kPsnSequenceError)) {
    on_psn_nak(packet, context);
  } else if (aeth.kind() == AethKind::kNak) {
    on_fatal_nak(packet, context);
  }
}

// The span of a READ was taken from the next request, and its first response says that it is smaller: requests between
// the two were lost, and what came behind was not accepted.
void ResponderJudge::correct_span(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  Accepted* const read =
      packet.info().operation == Operation::kReadResponse && packet.info().first ? find(psn) : nullptr;
  if (read == nullptr || !read->span_guessed || read->psn != psn) return;
  const uint32_t length = arrivals_[read->arrival - first_arrival_].length;
  if (!packet.info().last) context.learn_path_mtu(packet.payload_size());
  const bool only = packet.info().last && packet.payload_size() == length;
  const uint32_t span = only ? 1 : context.read_span(length);
  if (span == 0 || span >= read->span) return;
  const Psn behind = psn + read->span;
  read->span = span;
  read->span_guessed = false;
  reads_.correct_span(psn, span);
  if (find(behind) != nullptr) {
    roll_back(behind, context);
    spare_from_.reset();
  }
  gap_ = Gap{.psn = psn + span, .reported = false};
  expected_ = psn + span;
}

void ResponderJudge::judge_aeth(const Packet& packet, Context& context) const {
  const wire::Aeth& aeth = packet.wire().aeth;
  const bool ack = aeth.kind() == AethKind::kAck;
  const bool nak =
      aeth.kind() == AethKind::kNak && aeth.value() <= static_cast<uint8_t>(NakCode::kRemoteOperationalError);
  const bool response = packet.info().operation != Operation::kAcknowledge;
  if (response ? !ack : !ack && !nak && aeth.kind() != AethKind::kRnrNak) {
    context.violation(Rule::kSyndrome, text("syndrome 0x%02x in %s", aeth.syndrome, packet.info().name));
  }
  const auto counts = context.attributes.counts_credits;
  if (ack && counts && *counts != (aeth.value() != wire::kNoCreditsCode)) {
    context.violation(Rule::kCredits, text("credit code %u, and the QP %s receive requests", aeth.value(),
                                           *counts ? "counts" : "does not count"));
  }
}

// The messages that were completed when the request at `psn` was taken; nothing if that is long ago.
std::optional<uint64_t> ResponderJudge::least_messages(Psn psn, bool completed_there) {
  if (const Accepted* at = find(psn)) return at->messages_before + (completed_there && at->completes ? 1 : 0);
  if (!accepted_.empty() && psn + 1 == accepted_.front().psn) return accepted_.front().messages_before;
  if (psn == expected_ || (accepted_.empty() && psn + 1 == expected_)) return messages_;
  return std::nullopt;
}

// The MSN may be that of the request that is answered, or a later one up to what has arrived: an endpoint may know more
// when it sends than when it decided (IBTA 9.7.7.1). `completed_there`: the request at `psn` counts.
void ResponderJudge::judge_msn(Psn psn, Msn msn, bool completed_there, Context& context) {
  const auto least = least_messages(psn, completed_there);
  const Msn most(static_cast<uint32_t>(messages_) + msn_offset_);
  const int64_t behind = Msn::distance(msn, most);
  const bool right = behind >= 0 && (!least || behind <= static_cast<int64_t>(messages_ - *least));
  if (!msn_confirmed_) {
    learn_msn(msn, least == messages_, right);
  } else if (!right) {
    context.violation(Rule::kMsn, text("MSN %u for PSN %u: %u messages were completed, and %llu of them later",
                                       msn.value(), psn.value(), most.value(),
                                       static_cast<unsigned long long>(messages_ - least.value_or(messages_))));
  }
}

// In a capture that begins in the middle: as long as only duplicates arrive the MSN stands still while they are
// counted. `exact`: this MSN belongs to messages_. `right`: it fits what has been learnt.
void ResponderJudge::learn_msn(Msn msn, bool exact, bool right) {
  if (msn_known_ && right) {
    msn_confirmed_ = exact && msn != learnt_msn_;
  } else if (exact) {
    msn_offset_ = msn.value() - static_cast<uint32_t>(messages_);
    learnt_msn_ = msn;
    msn_known_ = true;
  }
}

void ResponderJudge::on_ack(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  if (refusal_ && Psn::distance(expected_, psn) >= 0) {
    context.violation(Rule::kAcksInvalid, text("ACK for PSN %u: %s", psn.value(), refusal_->text.c_str()));
    restart(psn + 1);
    return;
  }
  if (Psn::distance(expected_, psn) >= (span_unknown_ ? 1 : 0)) {
    if (!may_jump_) {
      context.violation(Rule::kAcksUnreceived,
                        text("ACK for PSN %u, PSN %u has not arrived", psn.value(), expected_.value()));
    }
    restart(psn + 1);
    return;
  }
  reads_.judge_order(psn + 1, "ACK", context);
  judge_msn(psn, packet.wire().aeth.msn, true, context);
  forget_answered(psn);
}

void ResponderJudge::on_psn_nak(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  ++context.counts.naks_out;
  reads_.judge_order(psn, "NAK", context);
  const auto late = std::find(closed_gaps_.begin(), closed_gaps_.end(), psn);
  if (not_ready_) {
    context.violation(Rule::kNakAfterRnr, text("NAK for PSN %u, and PSN %u has not come back after its RNR NAK",
                                               psn.value(), not_ready_->value()));
  } else if (gap_ && gap_->psn == psn) {
    if (gap_->reported) context.violation(Rule::kOneNakPerGap, text("second NAK for PSN %u", psn.value()));
    gap_->reported = true;
  } else if (late != closed_gaps_.end()) {
    reported_ = psn;
    closed_gaps_.erase(late);
  } else if (reported_ == psn) {
    context.violation(Rule::kOneNakPerGap, text("second NAK for PSN %u, which has arrived", psn.value()));
  } else if (may_jump_) {
    restart(psn);
  } else {
    context.violation(Rule::kNakPsn, text("NAK for PSN %u, expected is %u and %s", psn.value(), expected_.value(),
                                          gap_ ? "something ahead of it arrived" : "nothing ahead of it arrived"));
    // Perhaps what arrived here was lost on its way into the endpoint: go by what the endpoint says.
    if (find(psn) != nullptr) {
      roll_back(psn, context);
      spare_from_.reset();
      gap_ = Gap{.psn = psn, .reported = true};
    }
    return;
  }
  judge_msn(psn, packet.wire().aeth.msn, false, context);
  forget_answered(psn - 1);
}

void ResponderJudge::on_rnr_nak(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  ++context.counts.rnr_naks_out;
  reads_.judge_order(psn, "RNR NAK", context);
  if (find(psn) == nullptr) {
    const bool old = Psn::distance(psn, expected_) > 0;
    context.violation(
        old ? Rule::kDuplicateAnswer : Rule::kRnrPlace,
        text("RNR NAK for PSN %u, %s", psn.value(), old ? "which was acknowledged before" : "which has not arrived"));
    return;
  }
  roll_back(psn, context);
  not_ready_ = expected_;
  judge_msn(psn, packet.wire().aeth.msn, false, context);
  forget_answered(psn - 1);
}

void ResponderJudge::on_fatal_nak(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  ++context.counts.fatal_naks_out;
  reads_.judge_order(psn, "NAK", context);
  const int32_t ahead = Psn::distance(expected_, psn);
  const bool refused = ahead == 0 && (refusal_ || malformed_ == psn || span_unknown_);
  if (ahead >= 0 && !refused) {
    context.violation(Rule::kAcksUnreceived,
                      text("NAK for PSN %u, PSN %u has not arrived", psn.value(), expected_.value()));
  } else if (ahead < 0 && find(psn) == nullptr && reads_.oldest_unanswered() == nullptr) {
    context.violation(Rule::kDuplicateAnswer,
                      text("NAK that ends the connection for PSN %u, which was acknowledged before", psn.value()));
  }
  fatal_ = true;
}

}  // namespace uroce::oracle

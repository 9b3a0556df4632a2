// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/requester_judge.h"

#include "oracle/completion_judge.h"

namespace uroce::oracle {
namespace {

using wire::Operation;
using wire::Psn;

bool is_long_read(const Sent& sent) {
  return sent.request.is(Operation::kReadRequest) && sent.span > 1;
}

}  // namespace

void RequesterJudge::on_request(const Packet& packet, Context& context, CompletionJudge& completions) {
  const Request request = packet.request();
  if (!started_) start(request, context);
  settle_span(request.psn, context);

  const int32_t ahead = Psn::distance(sent_.next(), request.psn);
  if (!context.declared && std::abs(ahead) > kOtherConnection && sent_.all_acknowledged()) {
    context.cannot_judge("a jump of PSNs was taken for the beginning of another connection");
    restart(request.psn);
  } else if (learnt_from_ && Psn::distance(*learnt_from_, request.psn) < 0) {
    // Back to what is not known: nor is then what was acknowledged behind it.
    restart(request.psn);
    may_jump_ = true;
  } else if (ahead > 0) {
    if (!may_jump_ && !(jumped_ && may_hide_reads(ahead))) {
      context.violation(Rule::kPsnConsecutive,
                        text("PSN %u, the next new one is %u", request.psn.value(), sent_.next().value()));
    }
    restart(request.psn);
  }
  jumped_ = may_jump_ && ahead > 0;
  may_jump_ = may_jump_ && ahead <= 0;
  if (learnt_from_ && Psn::distance(*learnt_from_, sent_.next()) > kOtherConnection) learnt_from_.reset();

  judge_order(request.psn, context);
  if (request.psn == sent_.next() && sent_.unknown_span() == nullptr) {
    take_new(packet, request, context, completions);
  } else {
    take_again(packet, request, context);
  }
  const uint32_t span = context.span(request);
  cursor_ = span != 0 ? std::optional(request.psn + span) : std::nullopt;
  sent_.trim(context.now - context.options.slack, context.declared ? SIZE_MAX : kMostOutstanding);
}

void RequesterJudge::start(const Request& request, Context& context) {
  started_ = true;
  from_beginning_ = context.attributes.sq_psn.has_value();
  may_jump_ = !from_beginning_;
  if (!from_beginning_) {
    context.cannot_judge("credits and the number of requests sent: the first PSN is not known");
    learnt_from_ = request.psn;
  }
  sent_.restart(context.attributes.sq_psn.value_or(request.psn));
  sequence_ = MessageSequence(from_beginning_);
}

void RequesterJudge::restart(Psn next) {
  sent_.restart(next);
  learnt_from_ = next;
  sequence_ = MessageSequence(false);
  retries_ = RetryJudge();
  from_beginning_ = false;
  cursor_.reset();
  interrupted_.reset();
  for_nak_ = false;
  credits_known_ = false;
  reads_outstanding_ = 0;
}

// The packet sent last may be the newest one of a probe, with nothing but long READs behind it that were not seen,
// `ahead` PSNs in all.
bool RequesterJudge::may_hide_reads(int32_t ahead) {
  const Sent* last = sent_.find(sent_.next() - 1);
  return ahead > 1 && last != nullptr && !is_long_read(*last);
}

// A READ whose span was not known: the path MTU is known by now, or the PSN of the next request tells it.
void RequesterJudge::settle_span(std::optional<Psn> next, Context& context) {
  Sent* read = sent_.unknown_span();
  if (read == nullptr) return;
  if (const uint32_t span = context.read_span(read->request.length); span != 0) {
    sent_.set_last_span(span);
  } else if (next && Psn::distance(read->request.psn, *next) > 0) {
    sent_.set_last_span(static_cast<uint32_t>(Psn::distance(read->request.psn, *next)));
  }
}

void RequesterJudge::take_new(const Packet& packet, const Request& request, Context& context,
                              CompletionJudge& completions) {
  retries_.on_send(request.psn, false, sent_.all_acknowledged(), context);
  if (const auto found = sequence_.next(request, context)) context.violation(found->rule, found->text);
  if (request.info->first) ++messages_;

  // SE where a receive request completes: the end of a SEND or of a WRITE with immediate data (IBTA 9.2).
  if (request.solicited && !(request.info->last && request.consumes_receive())) {
    context.violation(Rule::kSolicited, text("SE in %s", request.info->name));
  }
  if (request.has_own_response()) ++reads_outstanding_;
  judge_window(request, context);
  judge_credits(request, context);
  append(packet, request, context);
  if (request.info->last && from_beginning_) {
    completions.on_message(messages_, request, sequence_.message_size(), context);
  }
}

void RequesterJudge::append(const Packet& packet, const Request& request, Context& context) {
  Sent sent{.request = request, .span = context.span(request)};
  sent.whole = packet.whole();
  if (sent.whole) sent.digest = packet.digest();
  if (request.info->last) sent.message_size = sequence_.message_size().value_or(request.payload_size);
  sent_.append(sent);
}

void RequesterJudge::judge_window(const Request& request, Context& context) const {
  const uint32_t outstanding = (request.psn.value() - sent_.unacknowledged().value()) & wire::kMask24;
  if (outstanding + context.span(request) > wire::kPsnHalf) {
    context.violation(Rule::kPsnWindow,
                      text("PSN %u, and %u is not acknowledged", request.psn.value(), sent_.unacknowledged().value()));
  }
  const auto depth = context.attributes.max_rd_atomic;
  if (depth && request.has_own_response() && reads_outstanding_ > *depth) {
    context.violation(Rule::kRdAtomicDepth,
                      text("%u READs and atomics outstanding, max_rd_atomic is %u", reads_outstanding_, *depth));
  }
}

void RequesterJudge::judge_order(Psn psn, Context& context) {
  // Where it went on behind a READ of unknown span, or before the capture, nobody knows: judged from the next new one
  // on.
  if (!cursor_) order_known_ = false;
  if (!order_known_) {
    order_known_ = psn == sent_.next() && sent_.unknown_span() == nullptr;
    interrupted_.reset();
    run_ = 1;
    return;
  }
  const int32_t ahead = Psn::distance(*cursor_, psn);
  const bool probing = run_ == 1 && !for_nak_ && interrupted_;
  if (ahead == 0) {
    // As another probe, with what is the oldest now, or as the second packet of one.
    const bool probe = probing && (psn == sent_.unacknowledged() || only_long_reads_between(psn, *interrupted_));
    if (!probe) ++run_;
    return;
  }
  if (ahead < 0) {
    if (!probing) interrupted_ = cursor_;  // else a probe after a probe
    for_nak_ = retries_.waits_for(psn);
    run_ = 1;
    return;
  }
  // Forward: to what is not acknowledged, or from a probe. That is a single packet sent again early, and perhaps the
  // last one before the interruption as well, or before long READs in front of that. Or another probe, of what is the
  // oldest now.
  const bool to_unacknowledged = Psn::distance(psn, sent_.unacknowledged()) >= 0;
  const bool oldest = psn == sent_.unacknowledged();
  if (probing && psn != *interrupted_ && (oldest || only_long_reads_between(psn, *interrupted_))) return;
  if (!to_unacknowledged && !(probing && psn == *interrupted_)) {
    context.violation(Rule::kGoBackOrder, text("PSN %u after going back, the next one is %u and %u is not acknowledged",
                                               psn.value(), cursor_->value(), sent_.unacknowledged().value()));
  }
  interrupted_.reset();
  run_ = 1;
}

// Nothing but READs with several responses was sent behind the packet `psn`, which is not one itself, and before `end`.
bool RequesterJudge::only_long_reads_between(Psn psn, Psn end) {
  const Sent* sent = sent_.find(psn);
  if (sent == nullptr || is_long_read(*sent)) return false;
  while (sent->span != 0 && Psn::distance(sent->end(), end) > 0) {
    sent = sent_.find(sent->end());
    if (sent == nullptr || !is_long_read(*sent)) return false;
  }
  return sent->end() == end;
}

void RequesterJudge::take_again(const Packet& packet, const Request& request, Context& context) {
  ++context.counts.retransmissions_out;
  Sent* sent = sent_.find(request.psn);
  const bool acknowledged =
      sent == nullptr || (sent_.is_acknowledged(*sent) && sent->acknowledged_at + context.options.slack < context.now);
  if (acknowledged) {
    context.violation(Rule::kResendsAcknowledged, text("PSN %u, all before %u is acknowledged", request.psn.value(),
                                                       sent_.unacknowledged().value()));
    return;
  }
  retries_.on_send(request.psn, true, false, context);
  ++sent->times_sent;
  if (sent->request.is(Operation::kReadRequest)) {
    judge_read_again(*sent, request, context);
  } else {
    judge_same(*sent, packet, request, context);
  }
}

// A repeated READ may ask for a part of the original, at the PSN of that part (IBTA 9.7.3.1).
void RequesterJudge::judge_read_again(const Sent& sent, const Request& request, Context& context) const {
  const Request& original = sent.request;
  const auto packets = static_cast<uint32_t>(Psn::distance(original.psn, request.psn));
  const uint64_t offset = request.va - original.va;
  const uint64_t expected = uint64_t{packets} * context.attributes.path_mtu.value_or(0);
  const bool place_known = context.attributes.path_mtu || packets == 0;
  if (!request.is(Operation::kReadRequest)) {
    context.violation(Rule::kResendDiffers,
                      text("PSN %u: %s, was part of a READ", request.psn.value(), request.info->name));
  } else if (request.rkey != original.rkey || (place_known && offset != expected) ||
             offset + request.length > original.length) {
    context.violation(
        Rule::kResendDiffers,
        text("PSN %u: READ of %u bytes at 0x%llx rkey 0x%x, was %u bytes at 0x%llx rkey 0x%x from PSN %u",
             request.psn.value(), request.length, static_cast<unsigned long long>(request.va), request.rkey,
             original.length, static_cast<unsigned long long>(original.va), original.rkey, original.psn.value()));
  }
}

void RequesterJudge::judge_same(const Sent& sent, const Packet& packet, const Request& request,
                                Context& context) const {
  const Request& original = sent.request;
  const char* what = nullptr;
  if (request.opcode != original.opcode) {
    what = "opcode";
  } else if (request.payload_size != original.payload_size) {
    what = "payload size";
  } else if (request.va != original.va || request.rkey != original.rkey || request.length != original.length) {
    what = "address, R_Key or length";
  } else if (request.solicited != original.solicited) {
    what = "SE";
  } else if (sent.whole && packet.whole() && packet.digest() != sent.digest) {
    what = "payload or header";
  }
  if (what == nullptr) return;
  context.violation(Rule::kResendDiffers, text("PSN %u: other %s than in packet %llu", request.psn.value(), what,
                                               static_cast<unsigned long long>(original.number)));
}

// Beyond the last message with a credit a SEND goes out one packet at a time; once its first packet is acknowledged it
// has its receive request, and the rest may follow. A WRITE with immediate data may go out wholly (IBTA 9.7.7.2).
void RequesterJudge::judge_credits(const Request& request, Context& context) {
  if (request.info->first) message_first_ = request.psn;
  if (!request.is(Operation::kSend) || !credits_known_ || messages_ <= credit_limit_) return;
  if (!request.info->first && !sent_.covers(message_first_)) return;
  if (limited_ && sent_.covers(*limited_)) {
    context.violation(Rule::kCreditLimit, text("PSN %u of message %llu, and PSN %u is not acknowledged; credits end "
                                               "with message %llu",
                                               request.psn.value(), static_cast<unsigned long long>(messages_),
                                               limited_->value(), static_cast<unsigned long long>(credit_limit_)));
  }
  limited_ = request.psn;
}

void RequesterJudge::on_response(const Packet& packet, Context& context) {
  if (!started_) return;
  settle_span(std::nullopt, context);
  const Psn psn = packet.bth().psn;
  if (Psn::distance(psn, sent_.next()) <= 0 && sent_.unknown_span() == nullptr) return;  // was never sent
  const wire::Aeth& aeth = packet.wire().aeth;
  const bool has_aeth = packet.info().has_aeth;
  if (has_aeth && aeth.kind() == wire::AethKind::kAck) note_credits(aeth);

  const Psn before = sent_.unacknowledged();
  if (!packet.info().has_aeth || packet.info().operation != Operation::kAcknowledge) {
    take_own_response(packet, context);
    retries_.on_response(psn);
  } else if (aeth.kind() == wire::AethKind::kAck) {
    acknowledge_before(psn + 1, context);
    retries_.on_response(psn);
  } else if (aeth.kind() != wire::AethKind::kReserved) {
    acknowledge_before(psn, context);
    if (sent_.unacknowledged() != before) retries_.on_progress(sent_.unacknowledged(), context);
    on_nak(packet, sent_.unacknowledged() != before, context);
  }
  if (sent_.unacknowledged() == before) return;
  // A response out of turn may be ignored wholly, credits included.
  if (has_aeth && aeth.kind() == wire::AethKind::kAck && aeth.value() != wire::kNoCreditsCode)
    credits_known_ = from_beginning_;
  last_progress_ = context.now;
  retries_.on_progress(sent_.unacknowledged(), context);
}

void RequesterJudge::acknowledge_before(Psn psn, Context& context) {
  for (const Sent* first = sent_.first_unacknowledged();
       first != nullptr && Psn::distance(first->end(), psn) >= 0 && !first->request.has_own_response();
       first = sent_.first_unacknowledged()) {
    finish_first(context);
  }
}

void RequesterJudge::take_own_response(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  acknowledge_before(psn, context);
  Sent* first = sent_.first_unacknowledged();
  if (first == nullptr || !first->request.has_own_response()) return;
  if (packet.bth().opcode == wire::Opcode::kRcReadResponseFirst) context.learn_path_mtu(packet.payload_size());
  settle_span(std::nullopt, context);
  const bool atomic = packet.info().operation == Operation::kAtomicAcknowledge;
  if (atomic != first->request.is_atomic() || psn != first->request.psn + first->answered) return;
  ++first->answered;
  if (first->answered == first->span) finish_first(context);
}

void RequesterJudge::finish_first(Context& context) {
  const Sent& first = *sent_.first_unacknowledged();
  if (first.request.has_own_response() && reads_outstanding_ > 0) --reads_outstanding_;
  if (first.request.info->last) {
    ++acknowledged_messages_;
    ++context.counts.messages_out;
    context.counts.goodput_out += first.message_size;
    context.counts.reads_out += first.request.is(Operation::kReadRequest);
    context.counts.atomics_out += first.request.is_atomic();
  }
  sent_.acknowledge_first(context.now);
}

// Everything before an unanswered READ or atomic first: a NAK behind one only says that its response was lost.
void RequesterJudge::on_nak(const Packet& packet, bool progress, Context& context) {
  const Psn psn = packet.bth().psn;
  const wire::Aeth& aeth = packet.wire().aeth;
  const Sent* first = sent_.first_unacknowledged();
  const bool next_in_turn =
      first != nullptr && Psn::distance(sent_.unacknowledged(), psn) >= 0 && Psn::distance(psn, first->end()) > 0;
  if (aeth.kind() == wire::AethKind::kRnrNak) {
    ++context.counts.rnr_naks_in;
    if (next_in_turn) retries_.on_rnr_nak(psn, aeth.value(), context);
  } else if (aeth.value() == static_cast<uint8_t>(wire::NakCode::kPsnSequenceError)) {
    ++context.counts.naks_in;
    if (next_in_turn) retries_.on_psn_nak(psn, progress, first->times_sent == 1 && psn == first->request.psn, context);
  } else if (aeth.value() <= static_cast<uint8_t>(wire::NakCode::kRemoteOperationalError)) {
    ++context.counts.fatal_naks_in;
    if (next_in_turn && !fatal_) fatal_since_ = context.now;
    fatal_ = fatal_ || next_in_turn;
  }
}

void RequesterJudge::note_credits(const wire::Aeth& aeth) {
  if (!from_beginning_ || aeth.value() == wire::kNoCreditsCode) return;
  const auto completed = static_cast<int64_t>(acknowledged_messages_) +
                         wire::Msn::distance(wire::Msn(static_cast<uint32_t>(acknowledged_messages_)), aeth.msn);
  const uint64_t limit = static_cast<uint64_t>(std::max<int64_t>(completed, 0)) + wire::credit_count(aeth.value());
  credit_limit_ = std::max(credit_limit_, limit);
}

}  // namespace uroce::oracle

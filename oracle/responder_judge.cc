// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/responder_judge.h"

namespace uroce::oracle {
namespace {

using wire::Operation;
using wire::Psn;

// Kept of a connection that answers nothing.
constexpr size_t kMostArrivals = 1 << 20;

}  // namespace

void ResponderJudge::on_request(const Packet& packet, Context& context) {
  const Request request = packet.request();
  if (!started_) start(request.psn, request.info->first, context);
  const bool far = std::abs(Psn::distance(expected_, request.psn)) > kOtherConnection;
  if (far && !context.declared && accepted_.empty() && request.info->first) {
    context.cannot_judge("a jump of PSNs was taken for the beginning of another connection");
    restart(request.psn);
  }
  if (learnt_from_ && Psn::distance(*learnt_from_, expected_) > kOtherConnection) learnt_from_.reset();
  if (Psn::distance(expected_, request.psn) < 0) ++context.counts.retransmissions_in;
  arrivals_.push_back(request);
  arrive(request, first_arrival_ + arrivals_.size() - 1, context);
  const bool unseen = !context.declared && accepted_.size() > kMostOutstanding;
  if (!accepted_.empty() && (unseen || arrivals_.size() > kMostArrivals)) accepted_.pop_front();
  forget_arrivals();
}

// `psn`: of the first request that arrives; `first`: it begins a message.
void ResponderJudge::start(Psn psn, bool first, const Context& context) {
  started_ = true;
  msn_known_ = msn_confirmed_ = context.attributes.rq_psn.has_value();
  expected_ = context.attributes.rq_psn.value_or(psn);
  if (!msn_known_) {
    learnt_from_ = expected_;
    may_jump_ = true;
  }
  sequence_ = MessageSequence(msn_known_ || first);
}

void ResponderJudge::restart(Psn expected) {
  *this = ResponderJudge();
  started_ = true;
  expected_ = expected;
  learnt_from_ = expected;
  sequence_ = MessageSequence(false);
}

void ResponderJudge::arrive(const Request& request, size_t arrival, Context& context) {
  settle_span(context, request.psn);
  const int32_t ahead = Psn::distance(expected_, request.psn);
  if (ahead < 0 || (ahead == 0 && span_unknown_)) {
    take_duplicate(request, context);
    return;
  }
  if (ahead > 0) {
    // Behind an RNR NAK or a refusal all is silently dropped until the end of that (IBTA 9.7.5.2.8).
    if (!gap_ && !not_ready_ && !refusal_) gap_ = Gap{.psn = expected_, .reported = false};
    return;
  }
  not_ready_.reset();
  if (gap_) {
    if (gap_->reported) {
      reported_ = gap_->psn;
    } else {
      closed_gaps_.push_back(gap_->psn);
    }
    gap_.reset();
  }
  accept(request, arrival, context);
}

void ResponderJudge::accept(const Request& request, size_t arrival, Context& context) {
  const MessageSequence before = sequence_;
  if (auto found = sequence_.next(request, context); found) {
    sequence_ = before;
    refusal_ = std::move(found);
    return;
  }
  const uint32_t span = context.span(request);
  accepted_.push_back({.psn = request.psn,
                       .span = span,
                       .messages_before = messages_,
                       .completes = request.info->last,
                       .arrival = arrival,
                       .before = before});
  span_unknown_ = span == 0;
  expected_ = request.psn + span;
  if (request.info->last) ++messages_;
  if (request.has_own_response()) reads_.on_new(request, span);
  if (request.ack_request && !request.has_own_response()) owe(request, request.psn);

  context.counts.messages_in += request.info->last;
  context.counts.reads_in += request.is(Operation::kReadRequest);
  context.counts.atomics_in += request.is_atomic();
  context.counts.goodput_in += request.payload_size;
}

void ResponderJudge::take_duplicate(const Request& request, const Context& context) {
  if (request.has_own_response()) {
    reads_.on_duplicate(request, context.span(request));
  } else if (request.ack_request) {
    owe(request, request.psn);
  }
}

void ResponderJudge::owe(const Request& request, Psn last) {
  // A later one that is owed already has to come anyway.
  if (!owed_.empty() && Psn::distance(owed_.back().psn, last) <= 0) return;
  owed_.push_back({.psn = last, .since = request.time, .packet = request.number});
}

void ResponderJudge::settle_span(const Context& context, std::optional<Psn> next) {
  if (!span_unknown_) return;
  Accepted& read = accepted_.back();
  const Request& request = arrivals_[read.arrival - first_arrival_];
  uint32_t span = context.span(request);
  if (span == 0 && next && Psn::distance(read.psn, *next) > 0) {
    span = static_cast<uint32_t>(Psn::distance(read.psn, *next));
    read.span_guessed = true;
  }
  if (span == 0) return;
  span_unknown_ = false;
  read.span = span;
  expected_ = read.psn + span;
  reads_.settle_span(span);
}

ResponderJudge::Accepted* ResponderJudge::find(Psn psn) {
  const auto behind = std::upper_bound(accepted_.begin(), accepted_.end(), psn, [](Psn p, const Accepted& accepted) {
    return Psn::distance(accepted.psn, p) < 0;
  });
  if (behind == accepted_.begin()) return nullptr;
  Accepted& found = *std::prev(behind);
  return Psn::distance(found.psn, psn) < static_cast<int32_t>(std::max(found.span, 1u)) ? &found : nullptr;
}

bool ResponderJudge::answers(Psn psn) const {
  if (!started_) return false;
  const uint32_t length = span_unknown_ ? arrivals_[accepted_.back().arrival - first_arrival_].length : 0;
  const Psn end = span_unknown_ ? expected_ + Context::largest_span(length) : expected_;
  if (Psn::distance(psn, end) < 0) return false;  // a PSN NAK has the expected one
  return accepted_.empty() ? Psn::distance(psn, expected_) <= 1 : Psn::distance(accepted_.front().psn, psn) >= -1;
}

// A response for `psn` went out: everything up to it was accepted, and is on record no longer.
void ResponderJudge::forget_answered(Psn psn) {
  while (!accepted_.empty() && accepted_.front().span != 0 &&
         Psn::distance(accepted_.front().psn + accepted_.front().span, psn) >= -1) {
    accepted_.pop_front();
  }
  if (spare_from_ && Psn::distance(spare_psn_, psn) >= 0) spare_from_.reset();
  forget_arrivals();
  while (!closed_gaps_.empty() && Psn::distance(closed_gaps_.front(), psn) >= 0) closed_gaps_.pop_front();
  while (!owed_.empty() && Psn::distance(owed_.front().psn, psn) >= 0) owed_.pop_front();
}

void ResponderJudge::forget_arrivals() {
  size_t first_needed = accepted_.empty() ? first_arrival_ + arrivals_.size() : accepted_.front().arrival;
  if (arrivals_.size() > kMostArrivals) spare_from_.reset();
  if (spare_from_) first_needed = std::min(first_needed, *spare_from_);
  while (first_arrival_ < first_needed && !arrivals_.empty()) {
    arrivals_.pop_front();
    ++first_arrival_;
  }
}

// Nothing from `psn` on was accepted.
void ResponderJudge::roll_back(Psn psn, Context& context) {
  const Accepted from = *find(psn);
  while (!accepted_.empty() && Psn::distance(from.psn, accepted_.back().psn) >= 0) {
    const Request& request = arrivals_[accepted_.back().arrival - first_arrival_];
    context.counts.messages_in -= request.info->last;
    context.counts.reads_in -= request.is(Operation::kReadRequest);
    context.counts.atomics_in -= request.is_atomic();
    context.counts.goodput_in -= request.payload_size;
    accepted_.pop_back();
  }
  expected_ = from.psn;
  messages_ = from.messages_before;
  sequence_ = from.before;
  span_unknown_ = false;
  refusal_.reset();
  gap_.reset();
  std::erase_if(closed_gaps_, [&](Psn gap) { return Psn::distance(from.psn, gap) >= 0; });
  owed_.clear();
  reads_.roll_back(from.psn);
  note_spares(from);
}

// The response that showed the request at `from` not to be accepted may have answered its first arrival, and others are
// yet to be answered. At most one response answers each of them.
void ResponderJudge::note_spares(const Accepted& from) {
  size_t answered = from.arrival;
  if (spare_from_ && spare_psn_ == from.psn) {
    for (answered = *spare_from_; answered < from.arrival; ++answered) {
      if (arrivals_[answered - first_arrival_].psn == from.psn) break;
    }
  }
  spare_psn_ = from.psn;
  spare_from_ = answered + 1;
}

// The endpoint answers what it cannot have, if it had refused all arrivals of that request: it took a later one.
void ResponderJudge::take_spares(Context& context) {
  const std::deque<Request> spares(arrivals_.begin() + static_cast<ptrdiff_t>(*spare_from_ - first_arrival_),
                                   arrivals_.end());
  size_t arrival = *spare_from_;
  spare_from_.reset();
  bool returned = false;
  for (const Request& request : spares) {
    returned = returned || request.psn == spare_psn_;
    if (returned) arrive(request, arrival, context);
    ++arrival;
  }
}

void ResponderJudge::on_unusable(const Packet& packet) {
  if (packet.has_bth()) malformed_ = packet.bth().psn;
}

void ResponderJudge::finish(Time end, Context& context) {
  const Duration patience = context.options.answer_within;
  const Request* read = reads_.oldest_unanswered();
  if (read != nullptr && read->time + patience < end) {
    context.violation(Rule::kUnanswered, text("%s PSN %u of packet %llu", read->info->name, read->psn.value(),
                                              static_cast<unsigned long long>(read->number)));
  } else if (!owed_.empty() && owed_.front().since + patience < end) {
    context.violation(Rule::kUnanswered, text("PSN %u of packet %llu", owed_.front().psn.value(),
                                              static_cast<unsigned long long>(owed_.front().packet)));
  }
}

}  // namespace uroce::oracle

// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/retry_judge.h"

#include <algorithm>

#include "wire/aeth.h"

namespace uroce::oracle {
namespace {

using wire::Psn;

constexpr uint8_t kForEver = 7;  // as rnr_retry (IBTA 9.7.5.2.8)

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

void RetryJudge::on_progress(Psn unacknowledged, const Context& context) {
  rnr_answers_ = nak_answers_ = 0;
  note_sign(context.now);
  if (rnr_ && Psn::distance(rnr_->psn, unacknowledged) > 0) rnr_.reset();
  if (nak_ && Psn::distance(nak_->psn, unacknowledged) > 0) nak_.reset();
}

void RetryJudge::on_response(Psn psn) {
  if (rnr_ && Psn::distance(rnr_->psn, psn) >= 0) rnr_.reset();
}

void RetryJudge::on_psn_nak(Psn psn, bool progress, bool fresh, const Context& context) {
  // That the endpoint goes back at once can be asked only if the NAK cannot be one that it has honoured already.
  const bool known = nak_ && nak_->psn == psn;
  if (known && !nak_->answered) return;
  nak_ = Nak{.psn = psn, .time = context.now, .progress = progress, .binding = fresh && !known};
}

void RetryJudge::on_rnr_nak(Psn psn, uint8_t timer_code, const Context& context) {
  const Time until = context.now + wire::rnr_delay(timer_code);
  note_sign(until);
  nak_answers_ = 0;                                      // the packet has arrived
  if (rnr_ && rnr_->psn == psn && rnr_->counts) return;  // a second one for the same attempt need not add to the wait
  rnr_ = RnrWait{.psn = psn, .from = context.now, .until = until};
}

void RetryJudge::on_send(Psn psn, bool again, bool idle, Context& context) {
  judge_time(again, idle, context);
  judge_rnr(psn, context);
  judge_nak(psn, context);
}

void RetryJudge::judge_rnr(Psn psn, Context& context) {
  const Duration slack = context.options.slack;
  if (!rnr_ || Psn::distance(rnr_->psn, psn) < 0) return;
  if (context.now <= rnr_->from + slack && slack > Duration{}) return;  // may not know of it yet
  if (rnr_->counts && context.now + slack < rnr_->until) {
    context.violation(Rule::kRnrWait, text("PSN %u %.3f ms after the RNR NAK for PSN %u, which asked for %.2f ms",
                                           psn.value(), milliseconds(context.now - rnr_->from), rnr_->psn.value(),
                                           milliseconds(rnr_->until - rnr_->from)));
  }
  if (!rnr_->counts) return;
  rnr_->counts = false;
  const auto budget = context.attributes.rnr_retry;
  if (++rnr_answers_; budget && *budget != kForEver && rnr_answers_ > *budget) {
    context.violation(Rule::kRnrBudget, text("%u. answer to an RNR NAK for PSN %u, rnr_retry is %u", rnr_answers_,
                                             rnr_->psn.value(), *budget));
  }
}

void RetryJudge::judge_nak(Psn psn, Context& context) {
  if (!nak_) return;
  const int32_t behind = Psn::distance(nak_->psn, psn);
  if (context.now <= nak_->time + context.options.slack && context.options.slack > Duration{}) {
    if (behind == 0) nak_->binding = false;  // may not know of it yet, but most likely does
    return;
  }
  if (behind < 0) return;  // an unanswered READ in front of it
  if (behind > 0) {
    if (nak_->binding) {
      context.violation(Rule::kNakIgnored, text("PSN %u after a NAK for PSN %u", psn.value(), nak_->psn.value()));
    }
    nak_->binding = false;
    return;
  }
  if (nak_->answered) return;
  nak_->answered = true;
  nak_->binding = false;
  const auto budget = context.attributes.retry_count;
  if (!nak_->progress) ++nak_answers_;
  if (budget && nak_answers_ > *budget) {
    context.violation(Rule::kRetryBudget, text("%u. answer to a NAK for PSN %u without progress, retry_cnt is %u",
                                               nak_answers_, psn.value(), *budget));
  }
}

void RetryJudge::judge_time(bool again, bool idle, Context& context) {
  const auto timeout = context.attributes.timeout;
  const auto retries = context.attributes.retry_count;
  if (!idle && timeout.value_or(0) != 0 && retries) {
    // 4.096 us * 2^code, and up to four times as long (IBTA 9.7.6.1.3).
    const Duration nominal = Duration(4096) * (int64_t{1} << *timeout);
    const Duration period = std::max<Duration>(4 * nominal, context.options.patience / (*retries + 1));
    const Duration longest = period * (*retries + 1);
    // A requester that is silent for longer than its timer runs was stopped meanwhile. Once: several such silences are
    // a timer that is too slow. Afterwards it may wait for an answer before the timer goes on.
    const Duration silence = context.now - std::max(last_sign_, last_sent_);
    if (silence > period + context.options.slack) stood_still_ = std::max(stood_still_, silence + nominal);
    if (context.now > last_sign_ + longest + stood_still_ + context.options.slack) {
      context.violation(Rule::kRetryBudget,
                        text("still sending %.0f ms after the last progress, timeout %u and retry_cnt %u allow %.0f ms",
                             milliseconds(context.now - last_sign_), *timeout, *retries, milliseconds(longest)));
      note_sign(context.now);
    }
  }
  if (!again) note_sign(context.now);
  last_sent_ = context.now;
}

void RetryJudge::note_sign(Time at) {
  if (at <= last_sign_) return;
  last_sign_ = at;
  stood_still_ = {};
}

}  // namespace uroce::oracle

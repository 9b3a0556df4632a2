// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/reliable/loss_recovery.h"

#include "engine/transport/reliable/probe_budget.h"
#include "wire/aeth.h"

namespace uroce::transport {

using io::SendReason;
using Decision = LossRecovery::Decision;

void LossRecovery::reset() {
  timers_.stop();
  round_trip_ = RoundTrip();
  sample_.reset();
  episode_ = Episode();
  probe_ = Probe::kNone;
  backoff_ = 0;
  probe_unanswered_ = lossy_ = false;
  repeats_asked_ = read_probes_ = 0;
}

// --- what happens ---------------------------------------------------------------------------------------------------

void LossRecovery::on_sent(wire::Psn psn, bool was_idle, bool first, bool measurable, Time now) {
  // While congestion control held back everything, timers expired unheard: there was nothing to answer.
  if (was_idle || (first && timers_.expired(Timer::kRetransmission, now))) {
    restart_timers(now);
  } else if (first && timers_.expired(Timer::kProbe, now)) {
    timers_.set(Timer::kProbe, now + probe_timeout());
  }
  if (!sample_ && measurable) sample_ = Sample{psn, now};
}

void LossRecovery::on_progress(const SendWindow& window, Time now) {
  timers_.stop(Timer::kReceiverNotReady);  // whatever an RNR NAK asked for, the peer has taken the packet
  episode_ = Episode();
  if (sample_ && window.offset(sample_->psn) >= wire::kPsnHalf) {  // acknowledged: lies behind the window now
    round_trip_.sample(now - sample_->sent_at);
    sample_.reset();
    if (backoff_ > 0) --backoff_;
  }
  if (window.offset(repeats_end_) >= wire::kPsnHalf) repeats_asked_ = read_probes_ = 0;
  if (window.idle()) {
    timers_.stop();
  } else {
    restart_timers(now);
  }
}

Decision LossRecovery::on_loss(SendReason cause, Time now) {
  lossy_ = true;
  backoff_ = read_probes_ = 0;
  probe_unanswered_ = false;
  // NAKs of one gap, however many, go back once.
  if (episode_.rewound || waits(now)) return Decision::kNothing;
  episode_.rewound = true;
  return rewind(cause);
}

Decision LossRecovery::on_overtaken(Time now) {
  if (episode_.overtaken) return Decision::kNothing;
  const Decision decision = on_loss(SendReason::kImpliedNak, now);
  episode_.overtaken = decision != Decision::kNothing;
  return decision;
}

Decision LossRecovery::on_rnr_nak(uint8_t code, Time now) {
  constexpr uint8_t kInfinite = 7;
  // One RNR NAK per wait: duplicates of it neither extend the wait nor spend the budget.
  if (waits(now)) return Decision::kNothing;
  qp_.counters.add(Counter::kRxRnrNaks);
  if (qp_.attr.rnr_retry != kInfinite && episode_.rnr_retries++ >= qp_.attr.rnr_retry) return Decision::kGiveUp;
  // The packet has arrived: that there is no receive request for it has a budget of its own. (rxe refuses with PSN NAKs
  // what follows it, and each attempt would spend a retry.)
  episode_ = Episode{.rnr_retries = episode_.rnr_retries};
  sample_.reset();
  const Time resume = now + wire::rnr_delay(code);
  restart_timers(resume);
  timers_.set(Timer::kReceiverNotReady, resume);
  cause_ = SendReason::kRnrNak;
  return Decision::kRewind;
}

void LossRecovery::on_spurious(uint32_t read_responses, bool idle, Time now) {
  if (std::exchange(probe_unanswered_, false)) {  // the first news of the last probe
    lossy_ = false;
    if (read_responses > 0) backoff_ = std::min<uint8_t>(backoff_ + 1, kMaxBackoff);
  }
  // The peer comes to what is waited for after that READ, and the more it is reminded of it the later.
  const uint32_t asked = std::min(repeats_asked_, read_responses);
  repeats_asked_ -= asked;
  if (repeats_asked_ == 0) read_probes_ = 0;
  if (read_responses == 0 || idle || waits(now)) return;
  if (asked > 0) {
    restart_timers(now);  // it does what it was asked for
  } else {
    postpone_probe(now);
  }
}

// The time is not the peer's silence: the timer is put off by as much. The first pause since the timers were started
// leaves it the nominal timeout at least, and what is in flight is probed first, gently: the answers are likely to be
// here already, or were lost here. Further ones only shift the timer. So who is merely slow, and late with every timer,
// gives up as well: between two expiries there are a bounded number of probes, each of which is late once.
void LossRecovery::on_pause(Duration late, Time now) {
  const Time timer = timers_.at(Timer::kRetransmission);
  const bool first = !std::exchange(paused_, true);
  if (timer != kNever) {
    const Time least = first ? now + transport_timeout(qp_.attr.timeout) : now;
    timers_.set(Timer::kRetransmission, std::max(timer + late, least));
  }
  if (!first) return;
  probes_put_off_ = probes_sent_ = 0;
  lossy_ = false;
  timers_.set(Timer::kProbe, now);
}

Decision LossRecovery::on_timer(const std::optional<LongRead>& read, Time now) {
  if (!may_send(now)) return Decision::kNothing;
  if (timers_.expired(Timer::kRetransmission, now)) {
    qp_.counters.add(Counter::kTimeouts);
    episode_.rewound = episode_.overtaken = false;
    ask_to_repeat(read);
    restart_timers(now);
    return rewind(SendReason::kTimeout);
  }
  if (!timers_.expired(Timer::kProbe, now)) return Decision::kNothing;
  const Decision decision = probe(read.has_value(), now);
  if (decision != Decision::kNothing) ask_to_repeat(read);
  return decision;
}

// --- what to do -----------------------------------------------------------------------------------------------------

Decision LossRecovery::rewind(SendReason cause) {
  if (episode_.retries >= qp_.attr.retry_count) return Decision::kGiveUp;
  ++episode_.retries;
  sample_.reset();
  cause_ = cause;
  return Decision::kRewind;
}

Decision LossRecovery::probe(bool long_read, Time now) {
  if (qp_.probe_budget != nullptr && !qp_.probe_budget->take(now)) {
    qp_.counters.add(Counter::kProbesPutOff);
    put_off_probe(now);
    return Decision::kNothing;
  }
  qp_.counters.add(Counter::kProbes);
  episode_.rewound = false;
  probe_unanswered_ = true;
  // The waits double; between probes that make the peer do much work, perhaps for nothing, they quadruple.
  if (probes_sent_ < kManyProbes) ++probes_sent_;
  // Of a peer that is away: from the longest wait before on, so that it is found back after half its absence.
  const int away = probes_sent_ - kMaxProbes;
  const Duration longest =
      away < 0 ? kMaxProbe : std::min<Duration>(kMaxProbe * (2 << std::min(away, 4)), kMaxSlowProbe);
  const Duration wait =
      probe_timeout() * (int64_t{1} << std::min((long_read && !lossy_ ? 2 : 1) * probes_sent_, +kManyProbes));
  timers_.set(Timer::kProbe, now + std::min(wait, longest));
  // A peer that is away gets no more than the two packets: when it comes back, it says what it lacks.
  if (!lossy_ || probes_sent_ > kMaxProbes) return Decision::kProbe;
  sample_.reset();
  cause_ = SendReason::kProbe;
  return Decision::kRewind;
}

void LossRecovery::ask_to_repeat(const std::optional<LongRead>& read) {
  if (!read) return;
  repeats_asked_ += std::min(read->responses, UINT32_MAX - repeats_asked_);
  repeats_end_ = read->end;
  read_probes_ = std::min<uint8_t>(read_probes_ + 1, kMaxProbes);
}

void LossRecovery::begin_probe(wire::Psn oldest, wire::Psn newest) {
  if (sample_ && (sample_->psn == oldest || sample_->psn == newest)) sample_.reset();
  if (!probe_due()) probe_ = Probe::kOldest;
}

// Something was sent while nothing was outstanding, the peer made progress, or everything is sent again.
void LossRecovery::restart_timers(Time from) {
  probes_put_off_ = probes_sent_ = 0;
  paused_ = false;
  timers_.set(Timer::kRetransmission, qp_.attr.timeout == 0 ? kNever : from + retransmission_time());
  timers_.set(Timer::kProbe, from + first_probe());
}

// The peer is alive, and busy with what it was asked for too often: the probes start anew. The retransmission timer
// expires in the time that IBTA gives it all the same.
void LossRecovery::postpone_probe(Time now) {
  probes_put_off_ = probes_sent_ = 0;
  timers_.set(Timer::kProbe, std::max(timers_.at(Timer::kProbe), now + probe_timeout()));
}

// The probe that is due may not be sent now. The waits double as between probes and vary by half, from QP to QP and
// from time to time, so that those who were put off together do not come back together. As often as necessary: what was
// not sent does not count as a probe.
void LossRecovery::put_off_probe(Time now) {
  ++probes_put_off_;
  const Duration wait = std::min<Duration>(probe_timeout() * (1 << std::min(probes_put_off_, 8u)), kMaxProbe);
  const uint32_t mixed = (qp_.qpn.value() + probes_put_off_ * 0x9e3779b9) * 0x85ebca6b;
  constexpr uint32_t kParts = 1024;
  timers_.set(Timer::kProbe, now + wait / 2 + wait * ((mixed ^ mixed >> 16) % kParts) / kParts);
}

Duration LossRecovery::probe_timeout() const {
  const Duration least = qp_.through_memory ? kMinProbeThroughMemory : kMinProbe;
  const Duration measured = std::max(round_trip_.overdue(kInitialProbe), least);
  return std::clamp<Duration>(measured * (1 << backoff_), least, kMaxProbe);
}

// Responses that come are no news where the peer has been asked for a long READ more than once: the next probe waits as
// after that one. Where packets are known to be lost they are news all the same.
Duration LossRecovery::first_probe() const {
  const int doublings = lossy_ ? 0 : 2 * read_probes_;
  return std::min<Duration>(probe_timeout() * (1 << doublings), kMaxProbe);
}

// The longest that IBTA 9.7.6.1.3 allows, or longer where the user asked for more patience: then all expiries together
// take that long.
Duration LossRecovery::retransmission_time() const {
  return std::max<Duration>(4 * transport_timeout(qp_.attr.timeout), qp_.patience / (qp_.attr.retry_count + 1));
}

}  // namespace uroce::transport

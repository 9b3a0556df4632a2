// SPDX-License-Identifier: BSD-2-Clause
#include "engine/congestion/dcqcn.h"

#include <algorithm>
#include <cassert>

namespace uroce::congestion {

namespace {

constexpr uint32_t kAlphaOne = 1024;

}  // namespace

Dcqcn::Dcqcn(const DcqcnParameters& parameters) : parameters_(&parameters) {
  assert(parameters.valid());
}

void Dcqcn::on_cnp(Rate start_rate, Time now) {
  if (controlled()) catch_up(now);
  if (!controlled()) {
    start(std::clamp(start_rate, parameters_->min_rate, kHighestRate).bits_per_second(), now);
    return reduce(now);
  }
  // Counted at once, where the firmware counts it at the period's end: alpha may have decayed to nothing, and a CNP is
  // not to be without effect.
  decay_alpha(now);
  if (!alpha_raised_) alpha_ += kAlphaOne - parameters_->alpha_kept;  // at most what a period takes off 1023
  alpha_raised_ = true;
  if (now >= reduced_at_ + parameters_->reduce_period) {
    reduce(now);
  } else {
    cnp_waiting_ = true;
  }
}

void Dcqcn::start(uint64_t cap, Time now) {
  cap_ = target_ = rate_ = cap;
  alpha_ = parameters_->initial_alpha;
  alpha_at_ = now;
  alpha_raised_ = true;
  time_stage_ = byte_stage_ = 0;
}

void Dcqcn::catch_up(Time now) {
  // Not later than the timer: reduce_period <= time_reset.
  if (const Time end = reduced_at_ + parameters_->reduce_period; cnp_waiting_ && now >= end) {
    decay_alpha(end);
    reduce(end);
  }
  if (now >= timer_at_) expire_timer(now);
}

void Dcqcn::count(uint32_t bytes, Time now) {
  catch_up(now);
  bytes_ += bytes;
  while (controlled() && bytes_ >= parameters_->byte_reset) {
    bytes_ -= parameters_->byte_reset;
    rise(byte_stage_);
  }
}

void Dcqcn::reduce(Time at) {
  const DcqcnParameters& p = *parameters_;
  if (p.clamp_target || byte_stage_ > 0 || (p.clamp_target_after_time_increase && time_stage_ > 0)) target_ = rate_;
  const uint64_t cut = std::min(rate_ * alpha_ >> p.decrease_shift, rate_ * p.max_decrease_percent / 100);
  rate_ = std::max(rate_ - cut, p.min_rate.bits_per_second());
  time_stage_ = byte_stage_ = 0;
  bytes_ = 0;
  reduced_at_ = at;
  timer_at_ = at + p.time_reset;
  cnp_waiting_ = false;
}

// Rounding down takes at least 1 off, so this ends after a few hundred periods however long the silence was.
void Dcqcn::decay_alpha(Time at) {
  if (at < alpha_at_ + parameters_->alpha_period) return;
  auto periods = (at - alpha_at_) / parameters_->alpha_period;
  alpha_at_ += periods * parameters_->alpha_period;
  alpha_raised_ = false;
  for (; periods > 0 && alpha_ > 0; --periods) alpha_ = alpha_ * parameters_->alpha_kept / kAlphaOne;
}

void Dcqcn::expire_timer(Time now) {
  const auto periods = (now - timer_at_) / parameters_->time_reset + 1;
  timer_at_ += periods * parameters_->time_reset;
  auto stages = static_cast<uint64_t>(periods);
  while (stages > 0 && controlled()) {
    const bool settled = time_stage_ > parameters_->threshold;
    const uint64_t distance = target_ - rate_;
    rise(time_stage_);
    --stages;
    if (settled && target_ - rate_ == distance) leap(stages);
  }
}

// What the next stage adds to the target.
uint64_t Dcqcn::increment() const {
  const auto [fewer, more] = std::minmax(time_stage_, byte_stage_);
  if (fewer > parameters_->threshold) return parameters_->hyper_increase.bits_per_second();
  if (more >= parameters_->threshold) return parameters_->additive_increase.bits_per_second();
  return 0;
}

void Dcqcn::rise(uint32_t& stage) {
  target_ = std::min(target_ + increment(), cap_);
  rate_ += (target_ - rate_) / 2;
  stage = std::min(stage + 1, parameters_->threshold + 1);
  release_at_cap();
}

void Dcqcn::release_at_cap() {
  if (rate_ + parameters_->additive_increase.bits_per_second() >= cap_) timer_at_ = kNever;
}

// Halving the distance and adding an increment have come to an equilibrium: until the target is at its cap, every stage
// adds the increment to rate and target. Takes those stages off `stages`.
void Dcqcn::leap(uint64_t& stages) {
  const uint64_t step = increment();
  assert(step > 0);  // with time_stage_ above threshold
  const uint64_t count = std::min(stages, (cap_ - target_) / step);
  target_ += count * step;
  rate_ += count * step;
  stages -= count;
  release_at_cap();
}

}  // namespace uroce::congestion

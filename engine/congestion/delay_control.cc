// SPDX-License-Identifier: BSD-2-Clause
#include "engine/congestion/delay_control.h"

#include <algorithm>

namespace uroce::congestion {

namespace {

// What is added in a nanosecond, bits per second: TIMELY's 10 Mb/s in 250 us.
constexpr uint64_t kIncrement = 40;
// After so long without a cut more is added, twice as much after each such time: TIMELY's hyperactive increase.
constexpr Duration kPatience = std::chrono::milliseconds(2);
// The rate has been no limit for so many rounds: control ends.
constexpr uint32_t kSpareRounds = 8;
constexpr uint64_t kLeast = DelayControl::kMinRate.bits_per_second();

}  // namespace

void DelayControl::start(Rate rate, Time now) {
  begin_round(now);
  rate_ = std::clamp(rate.bits_per_second(), kLeast, kHighestRate.bits_per_second());
  controlled_ = true;
  spare_ = 0;
  cut_at_ = now;
  decline_rate_ = 0;
}

bool DelayControl::on_acknowledged(uint64_t bytes, Duration rtt, Time now) {
  if (now - round_at_ > kPause) {
    controlled_ = false;
    delivered_ = {};
    begin_round(now - std::max(rtt, Duration{1}));
  }
  acknowledged_ += bytes;
  if (rtt > Duration{} && now >= samples_from_) {
    least_ = samples_ == 0 ? rtt : std::min(least_, rtt);
    ++samples_;
  }
  const Duration elapsed = now - round_at_;
  if (elapsed < (samples_ < kRoundSamples ? std::max(kLongestRound, target()) : target())) return false;
  const bool was_cut = end_round(now);
  if (was_cut && samples_ > 0) samples_from_ = now + least_;
  begin_round(now);
  return was_cut;
}

// Nothing has arrived for a round: there is no delay to judge by.
bool DelayControl::on_lost(Time now) {
  lost_ = true;
  if (!controlled_ || acknowledged_ > 0 || now - round_at_ < kLongestRound) return false;
  begin_round(now);
  delivered_[rounds_++ % delivered_.size()] = 0;
  spare_ = 0;
  cut_at_ = now;
  rate_ = std::max(rate_ / 2, kLeast);
  return true;
}

void DelayControl::begin_round(Time now) {
  round_at_ = now;
  acknowledged_ = 0;
  samples_ = 0;
  lost_ = false;
}

bool DelayControl::end_round(Time now) {
  const Rate arriving = Rate::of(acknowledged_, now - round_at_);
  delivered_[rounds_++ % delivered_.size()] = arriving.bits_per_second();
  if (samples_ > 0 && least_ < base_) base_ -= (base_ - least_) / 8;
  const bool above = samples_ > 0 && least_ > target();
  queueing_rounds_ = above ? queueing_rounds_ + 1 : 0;
  if (!controlled_) return false;
  const uint64_t before = rate_;
  const uint64_t delivered = *std::max_element(delivered_.begin(), delivered_.end());
  // What is lost is more than the network takes. (Random losses cost a little: a quarter more is for them.)
  if (lost_) rate_ = std::min(rate_, std::max(delivered + delivered / 4, kLeast));
  if (above) {
    cut(arriving.bits_per_second(), now);
  } else {
    raise(now);
    spare_ = !lost_ && rate_ / 4 > delivered ? spare_ + 1 : 0;
    controlled_ = spare_ <= kSpareRounds;
  }
  return rate_ < before;
}

// Swift's cut, in proportion to the delay beyond the target and by half at most; but not far below the rate at which
// packets arrive, at which the queue shrinks already.
void DelayControl::cut(uint64_t arriving, Time now) {
  spare_ = 0;
  cut_at_ = now;
  if (lost_) {
    decline_rate_ = 0;
  } else if (learn_base(arriving)) {
    return;
  }
  const auto excess = static_cast<uint64_t>((least_ - target()).count());
  const uint64_t proportional = rate_ - scaled(rate_, excess, 2 * static_cast<uint64_t>(least_.count()));
  const uint64_t not_below = std::min(arriving, rate_) * 15 / 16;
  rate_ = std::max({proportional, not_below, kLeast});
}

// Cuts down to a sixteenth that shorten no queue: then the delay is not a queue of ours. (A quarter is too early where
// many share a deep queue: it needs time until all have cut.) The route has changed, or
// somebody's threads are slow.
bool DelayControl::learn_base(uint64_t arriving) {
  if (decline_rate_ == 0) {
    decline_rate_ = std::max(std::min(rate_, arriving), kLeast);  // beyond that it was no limit
    decline_rtt_ = least_;
    return false;
  }
  if (rate_ > decline_rate_ / 16) return false;
  const bool in_vain = least_ > decline_rtt_ - (decline_rtt_ - target()) / 2;
  if (in_vain) {
    rate_ = decline_rate_;
    base_ = least_;
  }
  decline_rate_ = 0;
  return in_vain;
}

// In proportion to the time that has passed, so that the slow gain on the fast.
void DelayControl::raise(Time now) {
  decline_rate_ = 0;
  const auto passed = static_cast<uint64_t>(std::min(now - round_at_, kLongestRound).count());
  uint64_t step = scaled(kIncrement, passed, 1);
  if (const Duration quiet = now - cut_at_; quiet > kPatience) {
    step = std::min(step << std::min<int64_t>(quiet / kPatience, 10), std::max(step, rate_ / 32));
  }
  rate_ = std::min(rate_ + step, kHighestRate.bits_per_second());
}

// Swift's flow scaling: small shares collide in a queue that is longer by chance. All of it where the rate is less than
// a packet in a round trip.
Duration DelayControl::target() const {
  const Duration target = std::max(kLeastTarget, base_ + base_ / 2);
  if (!controlled_) return target;
  uint64_t window = scaled(rate_, static_cast<uint64_t>(target.count()), 8'192'000'000'000);  // packets
  Duration scaling = kFlowScaling;
  for (; window > 1 && scaling > Duration{}; window /= 4) scaling /= 2;  // 1 / sqrt(window)
  return target + scaling;
}

}  // namespace uroce::congestion

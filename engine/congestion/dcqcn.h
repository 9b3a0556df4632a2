// SPDX-License-Identifier: BSD-2-Clause
// The reaction point of one QP: how fast it may send after congestion notifications (CNPs), by the rules and default
// parameters of ConnectX firmware (wire.md "ConnectX and DCQCN"). Driven by Controller; sans-IO.
//
// A QP is free until a CNP comes: rate() is unlimited. The first CNP brings it under control: it starts at the rate
// that the caller names, which is its cap until it is free again, and is cut at once. Cuts are REDUCE_PERIOD apart; a
// CNP that comes too early is good for one cut at the period's end. Without CNPs the rate rises in stages, one every
// TIME_RESET and one every BYTE_RESET: half the distance to the target rate each, and later stages raise the target
// too.
//
// The target follows a cut down only if the rate was raised since the cut before (CLAMP_TGT_RATE 0). So a long flood of
// CNPs takes the rate to its floor and, once it ends, the first stage takes it back to half the cap: a flood says how
// long there was congestion, not how much.
//
// A QP is free again when its rate is within one additive step of the cap; the halving would go on for twenty more
// stages that nobody could measure. The next CNP is a first one then.
//
// No timer has to run: every call catches up with `now`, exactly as if it had been called all the time, in a number of
// steps that does not grow with the time that has passed. Time that stands still or goes back changes nothing.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "engine/congestion/rate.h"

namespace uroce::congestion {

// Names in capitals are the firmware's.
struct DcqcnParameters {
  uint32_t initial_alpha = 1023;                          // INITIAL_ALPHA, in 1/1024
  uint32_t alpha_kept = 1019;                             // DCE_TCP_G: alpha's share left after a period, in 1/1024
  Duration alpha_period = std::chrono::microseconds(1);   // DCE_TCP_RTT
  uint32_t decrease_shift = 11;                           // GD: a cut is rate * alpha >> GD
  uint32_t max_decrease_percent = 50;                     // MIN_DEC_FAC
  Duration reduce_period = std::chrono::microseconds(4);  // REDUCE_PERIOD, at most time_reset
  Rate min_rate = Rate::mbit(1);                          // MIN_RATE
  bool clamp_target = false;                              // CLAMP_TGT_RATE
  bool clamp_target_after_time_increase = true;           // CLAMP_AFTER_TIME_INC
  Duration time_reset = std::chrono::microseconds(300);   // RPG_TIME_RESET
  uint64_t byte_reset = 32767 * 64;                       // RPG_BYTE_RESET, bytes
  uint32_t threshold = 1;                                 // RPG_THRESHOLD, stages
  Rate additive_increase = Rate::mbit(5);                 // AI
  Rate hyper_increase = Rate::mbit(50);                   // HAI

  // What Dcqcn relies on.
  constexpr bool valid() const {
    return initial_alpha < 1024 && alpha_kept < 1024 && alpha_period > Duration{} && decrease_shift < 64 &&
           max_decrease_percent <= 100 && reduce_period > Duration{} && reduce_period <= time_reset &&
           min_rate > Rate{} && min_rate <= Rate::gbit(1'000'000) && byte_reset > 0 && additive_increase > Rate{} &&
           additive_increase <= hyper_increase && hyper_increase <= Rate::gbit(1'000'000);
  }
};

inline constexpr DcqcnParameters kDcqcnFirmwareDefaults{};
static_assert(kDcqcnFirmwareDefaults.valid());

class Dcqcn {
 public:
  // `parameters` outlive this.
  explicit Dcqcn(const DcqcnParameters& parameters = kDcqcnFirmwareDefaults);
  explicit Dcqcn(const DcqcnParameters&&) = delete;

  // True from a first CNP until a later call finds the rate back at its cap.
  bool controlled() const { return timer_at_ != kNever; }

  // Unlimited while not controlled; else from min_rate to the cap.
  Rate rate(Time now) {
    if (controlled()) catch_up(now);
    return rate();
  }
  // As of the latest call.
  Rate rate() const { return controlled() ? Rate::bits(rate_) : Rate::unlimited(); }

  // A CNP came. `start`: the rate to begin from if it is a first one; taken as at least min_rate, at most 1 Pb/s.
  void on_cnp(Rate start, Time now);

  // `bytes` were sent.
  void on_sent(uint32_t bytes, Time now) {
    if (controlled()) count(bytes, now);
  }

  // When rate() rises next if nothing happens until then; kNever if not controlled.
  Time next_rise() const { return timer_at_; }

 private:
  void start(uint64_t cap, Time now);
  void release_at_cap();
  void catch_up(Time now);
  void count(uint32_t bytes, Time now);
  void reduce(Time at);
  void decay_alpha(Time at);
  void expire_timer(Time now);
  uint64_t increment() const;
  void rise(uint32_t& stage);
  void leap(uint64_t& stages);

  const DcqcnParameters* parameters_;
  uint64_t cap_ = 0;  // this and the next two: bits per second, meaningful while controlled
  uint64_t target_ = 0;
  uint64_t rate_ = 0;
  Time timer_at_ = kNever;  // the next time stage
  Time reduced_at_{};
  Time alpha_at_{};            // the latest period of alpha that is accounted for
  uint32_t alpha_ = 0;         // 1/1024
  bool alpha_raised_ = false;  // a CNP was counted in the current period
  bool cnp_waiting_ = false;   // for the end of reduce_period
  uint32_t time_stage_ = 0;    // both stages stay at threshold + 1, where they make no difference any more
  uint32_t byte_stage_ = 0;
  uint64_t bytes_ = 0;  // since the latest byte stage
};

}  // namespace uroce::congestion

// SPDX-License-Identifier: BSD-2-Clause
// How fast to send to one destination, from round-trip times: what is above the time of an empty network is queueing.
// Driven by Controller; sans-IO. The rule is Swift's, on a rate instead of a window (docs/congestion.md).
//
// Judges by rounds of at least one round trip and eight samples, and by the shortest sample of a round: a queue delays
// all packets, a thread that was not scheduled some. A destination is free until start(): rate() is unlimited. It is
// free again when its rate has not been what limited it for some time.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "engine/congestion/rate.h"

namespace uroce::congestion {

class DelayControl {
 public:
  static constexpr Duration kLeastTarget =
      std::chrono::microseconds(80);  // a round trip that nobody is slowed down for
  static constexpr Duration kFlowScaling = std::chrono::microseconds(40);   // more where shares are small
  static constexpr Duration kPresumedBase = std::chrono::microseconds(40);  // at most, until cuts have shown otherwise
  static constexpr Rate kMinRate = Rate::mbit(1);

  bool controlled() const { return controlled_; }
  Rate rate() const { return controlled_ ? Rate::bits(rate_) : Rate::unlimited(); }

  // `bytes` more have arrived. `rtt`: of one of them that was sent once and asked for its acknowledgement; 0: not
  // known. True: the rate was cut.
  bool on_acknowledged(uint64_t bytes, Duration rtt, Time now);
  // True: the rate was cut.
  bool on_lost(Time now);

  // In the latest rounds packets queued for longer than is welcome.
  bool queueing() const { return queueing_rounds_ >= kQueueingRounds; }

  // Control begins, at this rate.
  void start(Rate rate, Time now);

  // A round trip with as much queueing as is welcome.
  Duration target() const;

 private:
  static constexpr uint32_t kRoundSamples = 8;
  static constexpr uint32_t kQueueingRounds = 3;
  static constexpr Duration kLongestRound = std::chrono::milliseconds(1);
  static constexpr Duration kPause = std::chrono::milliseconds(100);

  void begin_round(Time now);
  bool end_round(Time now);
  void cut(uint64_t arriving, Time now);
  void raise(Time now);
  bool learn_base(uint64_t arriving);

  uint64_t rate_ = 0;  // bits per second, meaningful while controlled
  bool controlled_ = false;
  bool lost_ = false;              // since the round began
  Duration base_ = kPresumedBase;  // a round trip of an empty network
  Duration least_{};               // of the round

  Time round_at_{};
  uint64_t acknowledged_ = 0;  // bytes, in the round
  uint32_t samples_ = 0;
  Time cut_at_{};
  Time samples_from_{};  // acknowledgements before are of packets that left before the cut
  uint32_t spare_ = 0;   // rounds in which the rate was no limit
  uint32_t queueing_rounds_ = 0;
  std::array<uint64_t, 4> delivered_{};  // bits per second, of the latest rounds
  uint32_t rounds_ = 0;

  uint64_t decline_rate_ = 0;  // where the cuts in a row began; 0: the latest round had none, or losses
  Duration decline_rtt_{};
};

}  // namespace uroce::congestion

// Whether packets to one destination may leave in runs (PacketIo::run). There are paths on which runs are lost and
// single packets are not: netdevs that cut them and number the pieces otherwise, receivers that take a run for one
// packet (AF_XDP in generic mode). On such a path a transfer crawls: what is sent alone, as probes are, arrives, and
// nothing behind it does. Then runs pause, and are tried again after a time that doubles. A mistake costs speed only.
// QPs to the same destination share a trial; it knows no clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/time.h"

namespace uroce::transport {

class RunTrial {
 public:
  static constexpr uint32_t kStep = 2;  // packets: what a probe brings forward
  static constexpr int kSteps = 3;      // in a row; a retry budget that is smaller may end first
  static constexpr Duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::minutes(1);

  bool allowed(Time now) const { return now >= resume_; }

  // A QP sends again from the oldest packet on that the peer lacks: `progress` packets behind where it last did. True:
  // runs pause from now on.
  bool on_went_back(uint32_t progress, Time now) {
    if (!allowed(now)) return false;
    if (progress > kStep) {
      steps_ = 0;
      if (now - resume_ > pause_) pause_ = kFirstPause;  // else it may have got on because runs paused
      return false;
    }
    if (++steps_ < kSteps) return false;
    steps_ = 0;
    resume_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  int steps_ = 0;
  Time resume_{};
  Duration pause_ = kFirstPause;
};

}  // namespace uroce::transport

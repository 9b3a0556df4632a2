// SPDX-License-Identifier: BSD-2-Clause
// Whether packets to one destination may leave in runs (PacketIo::run). There are paths on which runs are lost and
// single packets are not: netdevs that cut them and number the pieces otherwise, receivers that take a run for one
// packet (AF_XDP in generic mode). On such a path a transfer crawls: what is sent alone, as probes are and the first of
// those packets that are sent again, arrives, and nothing behind it does. Then runs pause, and are tried again after a
// time that doubles. Packets that are lost one by one look different: now and then a run arrives. QPs to the same
// destination share a trial; it knows no clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace uroce::transport {

class RunTrial {
 public:
  static constexpr uint32_t kStep = 2;  // packets: what a probe brings forward
  static constexpr int kSteps = 3;      // in a row; a retry budget that is smaller may end first
  static constexpr Duration kProven = std::chrono::milliseconds(100);  // so long a run that has arrived counts
  static constexpr Duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::minutes(1);

  static constexpr Duration kRefused = std::chrono::milliseconds(10);

  bool allowed(Time now) const { return now >= resume_ && now >= refused_until_; }
  // The kernel takes no runs to there at present. Whoever asks it tells anew.
  void on_refused(Time now) { refused_until_ = now + kRefused; }

  // A QP sends again from the oldest packet on that the peer lacks: `progress` packets behind where it last did. True:
  // runs pause from now on.
  bool on_went_back(uint32_t progress, Time now) {
    if (!allowed(now) || progress == 0) return false;  // single packets were lost as well, or the peer is slow
    if (progress > kStep) {
      steps_ = 0;
      if (now - resume_ <= pause_) return false;  // it may have got on because runs paused
      pause_ = kFirstPause;
      proven_until_ = now + kProven;
      return false;
    }
    if (++steps_ < kSteps || now < proven_until_) return false;
    steps_ = 0;
    resume_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  int steps_ = 0;
  Time resume_{};
  Time proven_until_{};
  Time refused_until_{};
  Duration pause_ = kFirstPause;
};

}  // namespace uroce::transport

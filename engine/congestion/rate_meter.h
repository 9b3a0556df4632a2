// SPDX-License-Identifier: BSD-2-Clause
// How fast packets have left for a destination lately: where a rate limit has to begin, for the speed of the port is
// often unknown (a veth claims 10 Gb/s whatever it can do). Fed by Controller.
//
// Measures in windows while the QP is busy. A pause ends what can be said: a QP that sends now and then has an average,
// but it is not its sending rate.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "engine/congestion/rate.h"

namespace uroce::congestion {

class RateMeter {
 public:
  // The shortest window, and the shortest pause. Longer than the stalls that a thread on a busy machine suffers.
  static constexpr Duration kWindow = std::chrono::milliseconds(1);

  void on_sent(uint32_t bytes, Time now) {
    if (now - latest_ > kWindow) {
      measured_.reset();
      begin(now);
    } else if (now - begin_ >= kWindow) {
      measured_ = Rate::of(bytes_, now - begin_);
      begin(now);
    }
    bytes_ += bytes;
    latest_ = now;
  }

  // Of the latest complete window since the latest pause. Nothing if there is none.
  std::optional<Rate> rate() const { return measured_; }

 private:
  void begin(Time now) {
    begin_ = now;
    bytes_ = 0;
  }

  Time begin_{};
  Time latest_{-2 * kWindow};
  uint64_t bytes_ = 0;  // sent from begin_ on
  std::optional<Rate> measured_;
};

}  // namespace uroce::congestion

// SPDX-License-Identifier: BSD-2-Clause
// Virtual time under the fuzzers: moves it on, and checks that the QPs let it move.
#pragma once

#include <array>
#include <cstdint>

#include "tests/fuzz/party.h"

namespace uroce::fuzz {

class Stepper {
 public:
  Stepper(simulator::EventQueue& events, std::array<Party*, 2> parties) : events_(events), parties_(parties) {}

  // Lets `time` pass, or as much of it as a bounded number of events takes: an input costs bounded time.
  void advance(Duration time);

  // To be called with both QPs in RESET or ERR: soon nobody sends or waits for anything any more.
  void settle();

 private:
  static constexpr uint32_t kMaxEvents = 3000;        // of one step
  static constexpr uint32_t kMaxEventsAtOnce = 2000;  // at the same time
  static constexpr uint32_t kMaxIdleEvents = 200;     // after a deadline without effect

  void check_progress();
  uint64_t frames() const;

  simulator::EventQueue& events_;
  const std::array<Party*, 2> parties_;
  uint64_t steps_ = 0, ended_ = 0;
  Time last_{};
  uint32_t at_once_ = 0;
  uint64_t last_frames_ = 0;
  uint32_t overdue_ = 0;
};

}  // namespace uroce::fuzz

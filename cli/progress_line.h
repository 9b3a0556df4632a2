// SPDX-License-Identifier: BSD-2-Clause
// How far something is that takes long: a line on standard error that is drawn over itself, where that is a terminal.
// What takes less than two seconds has none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace uroce::cli {

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;
  // `what`: "reading trace.pcapng". `total`: of what update() is told; 0: it is not known, and nothing is drawn.
  ProgressLine(std::string what, uint64_t total);
  ProgressLine(std::string what, uint64_t total, bool shown, Clock::time_point begun);  // for tests
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(uint64_t done) { update(done, Clock::now()); }
  void update(uint64_t done, Clock::time_point now);

 private:
  const std::string what_;
  const uint64_t total_;
  const bool shown_;
  Clock::time_point next_;  // when it is drawn
  bool drawn_ = false;
};

}  // namespace uroce::cli

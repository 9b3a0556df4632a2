// SPDX-License-Identifier: BSD-2-Clause
#include "cli/progress_line.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace uroce::cli {
namespace {

constexpr std::chrono::seconds kFirst{2};
constexpr std::chrono::milliseconds kEvery{200};

}  // namespace

ProgressLine::ProgressLine(std::string what, uint64_t total)
    : ProgressLine(std::move(what), total, isatty(STDERR_FILENO) != 0, Clock::now()) {}

ProgressLine::ProgressLine(std::string what, uint64_t total, bool shown, Clock::time_point begun)
    : what_(std::move(what)), total_(total), shown_(shown && total > 0), next_(begun + kFirst) {}

ProgressLine::~ProgressLine() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::update(uint64_t done, Clock::time_point now) {
  if (!shown_ || now < next_) return;
  next_ = now + kEvery;
  drawn_ = true;
  fmt::print(stderr, "\r{} {:3.0f} %\033[K", what_,
             100 * static_cast<double>(std::min(done, total_)) / static_cast<double>(total_));
  std::fflush(stderr);
}

}  // namespace uroce::cli

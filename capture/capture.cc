// SPDX-License-Identifier: BSD-2-Clause
#include "capture/capture.h"

#include <ctime>

namespace uroce::io {

int64_t Capture::wall_clock() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

size_t Capture::receive(std::span<RxPacket> out) {
  if (const bool listening = tap_->listening(); listening != shown_) {
    shown_ = listening;
    inner_->show_packets(listening);
  }
  const size_t count = inner_->receive(out);
  arrived_ = {};
  if (tap_->listening() && count > 0) {
    arrived_ = out.first(count);
    arrived_at_ = wall_clock();
  }
  return count;
}

void Capture::on_verdicts(std::span<const uint64_t> verdicts) {
  const std::span<const RxPacket> packets = arrived_.first(std::min(arrived_.size(), verdicts.size()));
  if (link_ == Link::kLoop) return tap_->looped(packets, verdicts, arrived_at_);
  tap_->received(packets, verdicts, arrived_at_);
}

// The packets are copied when it is known how many were taken and what was done to them; the memory is still theirs.
size_t Capture::send(std::span<io::TxPacket> burst) {
  if (link_ == Link::kLoop || !tap_->listening()) return inner_->send(burst);
  const int64_t time = wall_clock();
  const size_t count = inner_->send(burst);
  tap_->sent(burst.first(count), time);
  return count;
}

IoCounters Capture::counters() const {
  IoCounters counters = inner_->counters();
  counters.capture_dropped += tap_->dropped();
  return counters;
}

}  // namespace uroce::io

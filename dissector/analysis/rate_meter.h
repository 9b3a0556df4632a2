// SPDX-License-Identifier: GPL-2.0-or-later
// How fast a flow sends around a CNP: over the kPackets packets before it and the kPackets after it. One per flow, of
// fixed size.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "dissector/analysis/record.h"

namespace uroce::dissector {

class RateMeter {
 public:
  static constexpr uint64_t kPackets = 32;

  // Every packet of the flow. When a CNP has had its packets, its rate_after is known: calls known(record of the CNP).
  template <class Cnps, class Known>
  void on_packet(int64_t time, uint32_t bytes, Cnps& cnps, Known known) {
    total_bytes_ += bytes;
    samples_[count_ % samples_.size()] = {time, total_bytes_};
    ++count_;
    while (!waiting_.empty() && count_ - waiting_.front().at >= kPackets) {
      CnpRecord& cnp = cnps[waiting_.front().cnp];
      cnp.rate_after = rate();
      known(waiting_.front().record, cnp);
      waiting_.pop_front();
    }
  }
  void on_cnp(uint32_t record, uint32_t cnp, CnpRecord& out) {
    out.rate_before = rate();
    if (waiting_.size() == kMostWaiting) waiting_.pop_front();
    waiting_.push_back({count_, record, cnp});
  }

 private:
  static constexpr size_t kMostWaiting = 64;
  struct Sample {
    int64_t time;
    uint64_t total_bytes;
  };
  struct Waiting {
    uint64_t at;
    uint32_t record, cnp;
  };

  // Of the last kPackets packets, in bits per second; negative if there were fewer or no time passed.
  double rate() const {
    if (count_ <= kPackets) return -1;
    const Sample& from = samples_[(count_ - 1 - kPackets) % samples_.size()];
    const Sample& to = samples_[(count_ - 1) % samples_.size()];
    if (to.time <= from.time) return -1;
    return 8e9 * static_cast<double>(to.total_bytes - from.total_bytes) / static_cast<double>(to.time - from.time);
  }

  std::array<Sample, kPackets + 1> samples_{};
  uint64_t count_ = 0;
  uint64_t total_bytes_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace uroce::dissector

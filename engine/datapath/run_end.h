// SPDX-License-Identifier: BSD-2-Clause
// Tells when a run of a QP's packets (PacketIo::run) is as long as it gets: what is behind it would begin another one,
// and is left for the QP's next turn, so that runs are not parted by the length of a turn. A packet shorter than the
// one before it ends a run early, and one that is longer begins one (io/udp/run.h): the QP goes on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/io/packet_io.h"

namespace uroce::engine {

class RunEnd {
 public:
  // Of packets that leave by `io`. Null: not in runs.
  explicit RunEnd(const io::PacketIo* io) : io_(io) {}

  // A packet of so many bytes leaves.
  void add(uint32_t udp_length) {
    if (io_ == nullptr) return;
    if (udp_length > length_) left_ = io_->run(udp_length);
    const bool shorter = udp_length < length_;
    --left_;
    length_ = shorter ? 0 : udp_length;
  }
  bool reached() const { return length_ > 0 && left_ == 0; }

 private:
  const io::PacketIo* const io_;
  size_t left_ = 0;      // packets that fit behind those of the run so far
  uint32_t length_ = 0;  // of each of these; 0: there are none
};

}  // namespace uroce::engine

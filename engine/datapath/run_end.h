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

  // How many packets of so many bytes leave until it is reached, or another run begins.
  size_t room(uint32_t udp_length) const {
    if (io_ == nullptr) return SIZE_MAX;
    if (udp_length > length_) return io_->run(udp_length);
    return udp_length < length_ ? 1 : left_;
  }
  // `count` of them leave, as many as there is room for at most.
  void add(uint32_t udp_length, size_t count = 1) {
    if (io_ == nullptr) return;
    left_ = room(udp_length) - count;
    length_ = udp_length < length_ ? 0 : udp_length;
  }
  bool reached() const { return length_ > 0 && left_ == 0; }

 private:
  const io::PacketIo* const io_;
  size_t left_ = 0;      // packets that fit behind those of the run so far
  uint32_t length_ = 0;  // of each of these; 0: there are none
};

}  // namespace uroce::engine

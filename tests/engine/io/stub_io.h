// SPDX-License-Identifier: BSD-2-Clause
// A packet I/O without packets, for tests of those that have others inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <poll.h>
#include <span>
#include <string>

#include "engine/io/packet_io.h"

namespace uroce::io::test {

// Has descriptors, takes nothing more and says how long packets may be.
class StubIo final : public PacketIo {
 public:
  StubIo(int descriptor, uint32_t length) : descriptor_{descriptor, POLLIN, 0}, length_(length) {}
  size_t receive(std::span<RxPacket>) override {
    ++looks;
    return 0;
  }
  void look_everywhere() override { ++asked; }
  bool looked_everywhere() const override { return clear; }
  size_t send(std::span<io::TxPacket>) override {
    descriptor_.events = POLLIN | POLLOUT;
    return 0;
  }
  bool flush() override { return clear; }
  std::span<const pollfd> wait_descriptors() const override { return {&descriptor_, 1}; }
  bool prepare_to_wait() override { return clear; }
  bool left_over() const override { return !clear; }
  uint32_t max_udp_length() const override { return length_; }
  std::string description() const override { return "stub"; }
  IoCounters counters() const override { return counted; }

  bool clear = true;
  size_t looks = 0, asked = 0;  // to receive; to look everywhere
  IoCounters counted;

 private:
  pollfd descriptor_;
  const uint32_t length_;
};

// `outer` has `inner` inside, and passes on who wants to know what there is.
inline void expect_passes_on_looks(PacketIo& outer, StubIo& inner) {
  outer.look_everywhere();
  EXPECT_EQ(inner.asked, 1u);
  inner.clear = false;
  EXPECT_FALSE(outer.looked_everywhere());
  inner.clear = true;
  EXPECT_TRUE(outer.looked_everywhere());
}

}  // namespace uroce::io::test

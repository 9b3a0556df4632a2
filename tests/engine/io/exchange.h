// SPDX-License-Identifier: BSD-2-Clause
// Moves test packets from one backend to another, with a deadline instead of a count of polls. For the tests of the
// system backends.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <span>

#include "engine/io/packet_io.h"
#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {

inline constexpr std::chrono::seconds kDeadline{20};  // only ever reached by a failing test

// Calls `step` until it returns true; false when it never did.
template <class Step>
bool eventually(Step step) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!step()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

inline constexpr size_t kWindow = 256;

// As packets leave a place that the next one is to take.
inline void leave_marks(std::span<RxPacket> places) {
  static constexpr std::array<uint8_t, 16> kOld{};
  for (RxPacket& place : places) {
    place.frame = place.apart = kOld;
    place.faults = kFaultCorrupted;
    place.without_icrc = place.in_run = true;
    place.psns = 7;
    place.source_qpn = wire::Qpn(0x123456);
    place.reason = SendReason::kTimeout;
  }
}

// Sends the whole burst with at most kWindow packets under way; everything has to arrive in order and exact.
inline void exchange(PacketIo& from, PacketIo& to, TestBurst& burst) {
  size_t sent = 0;
  size_t arrived = 0;
  std::array<RxPacket, 32> received;
  const bool complete = eventually([&] {
    const size_t allowed = std::min(burst.size(), arrived + kWindow);
    if (sent < allowed) sent += from.send(burst.packets().subspan(sent, allowed - sent));
    from.flush();
    leave_marks(received);
    const size_t count = to.receive(received);
    for (size_t i = 0; i < count && arrived < burst.size(); ++i) {
      EXPECT_FALSE(received[i].in_run && to.counters().rx_run_packets == 0);
      burst.expect_arrived(arrived++, received[i]);
    }
    return arrived == burst.size() || testing::Test::HasFailure();
  });
  EXPECT_TRUE(complete) << "only " << arrived << " of " << burst.size() << " packets arrived, " << sent
                        << " sent; kernel refused " << from.counters().tx_errors << ", receiver dropped "
                        << to.counters().rx_no_buffer << ", malformed " << to.counters().rx_malformed;
}

inline void exchange(PacketIo& from, PacketIo& to, TestBurst&& burst) {
  exchange(from, to, burst);
}

}  // namespace uroce::io::test

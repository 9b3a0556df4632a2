// SPDX-License-Identifier: BSD-2-Clause
// How many packets go-back-N has in flight where some are lost: as many as the round trip needs, and no queue of its
// own.
#include "engine/transport/common/go_back_window.h"

#include <gtest/gtest.h>
#include <random>

namespace uroce::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr uint32_t kLargest = congestion::Controller::kWindow;
constexpr Duration kPacket = nanoseconds(880);  // 1 KiB at 10 Gb/s
constexpr Duration kEmpty = microseconds(22);   // the round trip of a packet alone: 25 packets
constexpr auto kNeeded = static_cast<uint32_t>(kEmpty / kPacket);

// A sender whose NIC takes all that it is given: what is in flight beyond 25 packets queues there.
Duration round_trip(uint32_t in_flight, Duration empty = kEmpty) {
  return std::max<Duration>(empty, in_flight * kPacket);
}
void exchange(GoBackWindow& window, int rounds, Duration empty = kEmpty) {
  for (int i = 0; i < rounds; ++i) {
    window.on_new_packet();
    const uint32_t in_flight = window.window();
    window.on_acknowledged(in_flight);
    window.on_round_trip(round_trip(in_flight, empty), in_flight);
  }
}
// A first packet alone, then as many as are allowed.
GoBackWindow busy_window() {
  GoBackWindow window;
  window.on_round_trip(kEmpty, 1);
  exchange(window, 100);
  return window;
}
void lose(GoBackWindow& window, int packets) {
  for (int i = 0; i < packets; ++i) window.on_lost();
}

TEST(GoBackWindow, BoundsNothingBeforeALoss) {
  EXPECT_EQ(GoBackWindow().window(), kLargest);
  EXPECT_EQ(busy_window().window(), kLargest);
}

// READs: no round trip is ever measured.
TEST(GoBackWindow, WithoutRoundTripsThereIsNoBound) {
  GoBackWindow window;
  window.on_acknowledged(1);
  lose(window, 100);
  window.on_new_packet();
  EXPECT_EQ(window.window(), kLargest);
}

TEST(GoBackWindow, AfterALossAsManyAsTheRoundTripNeeds) {
  GoBackWindow window = busy_window();
  window.on_lost();
  EXPECT_GE(window.window(), kNeeded) << "the link would not be full";
  EXPECT_LE(window.window(), 2 * kNeeded);
  exchange(window, 10);
  window.on_lost();
  EXPECT_GE(window.window(), kNeeded);
  EXPECT_LE(window.window(), 2 * kNeeded);
  exchange(window, 2000);  // nothing is lost any more
  EXPECT_EQ(window.window(), kLargest);
}

// What the others leave of the link's rate is what a sender needs packets for.
TEST(GoBackWindow, ASmallerShareNeedsFewer) {
  GoBackWindow window = busy_window();
  window.on_lost();
  const uint32_t alone = window.window();
  for (int i = 0; i < 20; ++i) window.on_round_trip(4 * round_trip(window.window()), window.window());
  EXPECT_LE(window.window(), alone / 2);
  exchange(window, 20);
  EXPECT_GE(window.window(), alone);
}

// Single answers that come late do not make the window small.
TEST(GoBackWindow, LateAnswersDoNotCount) {
  std::mt19937 random(1);
  GoBackWindow window = busy_window();
  for (int i = 0; i < 200; ++i) {
    if (i % 64 == 0) window.on_lost();
    window.on_round_trip(round_trip(window.window()) + microseconds(random() % 4 == 0 ? 500 : 0), window.window());
    EXPECT_GE(window.window(), kNeeded * 3 / 4);
  }
}

// Every 64th loss is followed by a round trip with few packets, once all that was lost has been sent again.
TEST(GoBackWindow, LooksForTheEmptyRoundTripNowAndThen) {
  GoBackWindow window = busy_window();
  lose(window, 63);
  window.on_new_packet();
  EXPECT_GE(window.window(), kNeeded);
  window.on_lost();
  EXPECT_GE(window.window(), kNeeded) << "what is sent again does not tell the round trip";
  window.on_new_packet();
  EXPECT_EQ(window.window(), 4u);
  window.on_lost();
  EXPECT_GE(window.window(), kNeeded) << "lost while looking: all of it again";
  window.on_new_packet();
  EXPECT_EQ(window.window(), 4u);
  window.on_round_trip(round_trip(20), 20);  // left before
  EXPECT_EQ(window.window(), 4u);
  window.on_round_trip(kEmpty, 4);
  EXPECT_GE(window.window(), kNeeded);
}

// A look, too, would wait for the responses.
TEST(GoBackWindow, AReadEndsTheBound) {
  GoBackWindow window = busy_window();
  lose(window, 64);
  window.on_new_packet();
  EXPECT_EQ(window.window(), 4u);
  window.on_read();
  EXPECT_EQ(window.window(), kLargest);
  window.on_lost();
  EXPECT_LE(window.window(), 2 * kNeeded);
}

// Who has sent little so far does not go on with next to nothing.
TEST(GoBackWindow, SixteenAtLeast) {
  GoBackWindow window;
  window.on_round_trip(kEmpty, 1);
  window.on_lost();
  EXPECT_EQ(window.window(), 16u);
}

// Another route, four times as long: the window that the short one needed does not stay.
TEST(GoBackWindow, ALongerRouteIsLearnt) {
  constexpr Duration kLonger = 4 * kEmpty;
  GoBackWindow window = busy_window();
  window.on_lost();
  exchange(window, 100, kLonger);
  window.on_lost();
  EXPECT_LT(window.window(), 2 * kNeeded);
  lose(window, 62);
  exchange(window, 100, kLonger);
  window.on_lost();
  EXPECT_GE(window.window(), 4 * kNeeded);
}

}  // namespace
}  // namespace uroce::transport

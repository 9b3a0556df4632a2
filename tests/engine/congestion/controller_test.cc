// SPDX-License-Identifier: BSD-2-Clause
// What senders to one destination see: no limit until a CNP, then one that begins where they were, and ends; and what
// each algorithm listens to. Round-trip times: delay_control_test.cc.
#include "engine/congestion/controller.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <tuple>
#include <vector>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint32_t kPacket = 1250;  // 1 us at 10 Gb/s

class ControllerTest : public testing::Test {
 protected:
  // Sends as much as is allowed, but a packet per `interval` at most, for `time`. Sleeps until resume_at() when
  // refused.
  uint64_t send_for(Duration time, Duration interval = microseconds(1)) {
    const Time end = now_ + time;
    uint64_t bytes = 0;
    while (now_ < end) {
      if (to_.may_send(turn_, kPacket, now_)) {
        to_.on_sent(turn_, kPacket, now_);
        bytes += kPacket;
        now_ += interval;
      } else {
        EXPECT_GT(to_.resume_at(turn_), now_);
        now_ = std::min(to_.resume_at(turn_), end);
      }
    }
    return bytes;
  }
  void flood(int cnps) {
    for (int i = 0; i < cnps; ++i) to_.on_cnp(now_ += microseconds(1));
  }

  Controller to_{Algorithm::kDcqcn, Rate::gbit(100)};
  Turn turn_;
  Time now_{milliseconds(5)};
};

TEST_F(ControllerTest, FreeWithoutCnps) {
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(to_.may_send(turn_, kPacket, now_));
    to_.on_sent(turn_, UINT32_MAX, now_);
  }
  EXPECT_LT(to_.resume_at(turn_), Time{});
  EXPECT_EQ(to_.rate(now_), Rate::unlimited());
  EXPECT_EQ(to_.window(kPacket), std::nullopt);
}

// 10 Gb/s * (1 - 1023/2048)
TEST_F(ControllerTest, BeginsFromTheMeasuredRate) {
  send_for(milliseconds(2) + nanoseconds(1));
  to_.on_cnp(now_);
  EXPECT_EQ(to_.rate(now_), Rate::bits(5'004'882'813));
}

TEST_F(ControllerTest, BeginsFromTheLineWhereNothingIsMeasured) {
  to_.on_cnp(now_);
  EXPECT_EQ(to_.rate(now_), Rate::bits(50'048'828'125));
}

// 300 us at 5,004,882,813 b/s are 187,683 bytes or 150.1 packets; 50 us more may be booked ahead, 25 packets, and the
// packet that exceeds it: 175 or 176.
TEST_F(ControllerTest, KeepsToTheRate) {
  send_for(milliseconds(2) + nanoseconds(1));
  to_.on_cnp(now_);
  const uint64_t packets = send_for(microseconds(300), nanoseconds(1)) / kPacket;
  EXPECT_GE(packets, 175u);
  EXPECT_LE(packets, 176u);
}

// A byte stage raises the rate from 50,048,828,125 b/s halfway to 100 Gb/s, and what was sent is worked off at the new
// rate: 2,097,088 * 8 / 75,024,414,062 s = 223,616.6 ns.
TEST_F(ControllerTest, BytesSentRaiseTheRate) {
  to_.on_cnp(now_);
  ASSERT_TRUE(to_.may_send(turn_, kPacket, now_));
  to_.on_sent(turn_, 2'097'088, now_);
  EXPECT_EQ(to_.rate(now_), Rate::bits(75'024'414'062));
  ASSERT_FALSE(to_.may_send(turn_, kPacket, now_));
  EXPECT_NEAR(static_cast<double>((to_.resume_at(turn_) - now_).count()), 223'616.6 - 50'000, 2);
}

// A refused sender is told when the rate rises, not only when its packet's turn is at the old rate: at the floor that
// is 10 ms after the packet, at the rate 300 us after the last cut it is at once.
TEST_F(ControllerTest, RecoveryDoesNotWaitForAPacketAtTheFloor) {
  send_for(milliseconds(2) + nanoseconds(1));
  flood(1000);
  const Time last_cut = now_ + microseconds(4);
  ASSERT_TRUE(to_.may_send(turn_, kPacket, now_));
  to_.on_sent(turn_, kPacket, now_);
  ASSERT_FALSE(to_.may_send(turn_, kPacket, now_));
  EXPECT_LE(to_.resume_at(turn_), last_cut + microseconds(300));
  send_for(milliseconds(2));
  EXPECT_GT(to_.rate(now_), Rate::gbit(8));
}

// faults.md 30, with traffic: at the floor, 1 Mb/s is 100 packets per second.
TEST_F(ControllerTest, FloodWhileSending) {
  send_for(milliseconds(2) + nanoseconds(1));
  flood(1000);
  int packets = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    to_.on_cnp(now_ += microseconds(1));
    if (!to_.may_send(turn_, kPacket, now_)) continue;
    to_.on_sent(turn_, kPacket, now_);
    ++packets;
  }
  EXPECT_EQ(to_.rate(now_), Rate::mbit(1));
  EXPECT_GE(packets, 100);
  EXPECT_LE(packets, 101);
  // 11 stages and the last cut (RecoversFromAFlood); bytes can only make it faster.
  send_for(microseconds(3304), microseconds(1));
  EXPECT_EQ(to_.rate(now_), Rate::unlimited());
  EXPECT_LT(to_.resume_at(turn_), Time{});
}

// One episode after the other: what is measured while the rate comes back is not mistaken for a lower wish.
TEST_F(ControllerTest, EpisodesDoNotWearTheRateDown) {
  send_for(milliseconds(2) + nanoseconds(1));
  for (int episode = 0; episode < 50; ++episode) {
    to_.on_cnp(now_);
    send_for(milliseconds(5));
    ASSERT_EQ(to_.rate(now_), Rate::unlimited()) << episode;
  }
  to_.on_cnp(now_);
  EXPECT_GT(to_.rate(now_), Rate::bits(4'900'000'000));
}

TEST_F(ControllerTest, IdleForAnHourUnderControl) {
  flood(1000);
  now_ += std::chrono::hours(1);
  EXPECT_TRUE(to_.may_send(turn_, kPacket, now_));
  EXPECT_EQ(to_.rate(now_), Rate::unlimited());
}

// In any stretch: no more than its highest rate allows, with the burst, one packet, and the one that had a place from
// before. The stretches are too short for
// a time stage; byte stages come.
TEST_F(ControllerTest, NeverFasterThanAllowed) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (int i = 0; i < 200; ++i) {
      to_.on_cnp(now_);
      const Rate first = to_.rate(now_);
      const Time begin = now_;
      const uint64_t packets = send_for(microseconds(random() % 299), nanoseconds(1 + random() % 2000)) / kPacket;
      if (packets < 2) continue;
      const Rate highest = std::max(first, to_.rate(now_));
      ASSERT_LE(highest.time_for((packets - 2) * kPacket), now_ - begin + Pacer::kBurst) << i;
    }
    now_ += std::chrono::seconds(10);
    ASSERT_TRUE(to_.may_send(turn_, kPacket, now_));
  }
}

// --- several senders -------------------------------------------------------------------------------------------------

// All have the same share, though one of them is always asked first, and none is woken more often than it may send.
TEST_F(ControllerTest, SendersTakeTurns) {
  send_for(milliseconds(2) + nanoseconds(1));
  flood(30);
  struct Sender {
    Turn turn;
    int sent = 0, refused = 0;
  };
  std::vector<Sender> senders(5);
  for (const Time end = now_ + milliseconds(200); now_ < end;) {
    to_.on_cnp(now_);
    Time next = Time::max();
    for (Sender& sender : senders) {
      if (now_ >= to_.resume_at(sender.turn)) {
        if (to_.may_send(sender.turn, kPacket, now_)) {
          to_.on_sent(sender.turn, kPacket, now_);
          ++sender.sent;
        } else {
          ++sender.refused;
        }
      }
      next = std::min(next, to_.resume_at(sender.turn));
    }
    now_ = std::max(next, now_ + microseconds(1));
  }
  for (const Sender& sender : senders) {
    EXPECT_GT(sender.sent, 3);
    EXPECT_NEAR(sender.sent, senders[0].sent, 1);
  }
}

TEST_F(ControllerTest, ATurnOfAnEarlierEpisodeIsDue) {
  send_for(milliseconds(2));
  flood(1000);
  while (to_.may_send(turn_, kPacket, now_)) to_.on_sent(turn_, kPacket, now_);
  now_ += std::chrono::hours(24 * 365);
  EXPECT_TRUE(to_.may_send(turn_, kPacket, now_));
  to_.on_cnp(now_);
  EXPECT_TRUE(to_.may_send(turn_, kPacket, now_));
}

// --- algorithms ------------------------------------------------------------------------------------------------------

class Listens : public testing::TestWithParam<std::tuple<Algorithm, bool, bool, bool>> {};

// To CNPs, to losses, to round-trip times without a loss.
TEST_P(Listens, ToWhat) {
  const auto [algorithm, cnps, losses, delay] = GetParam();
  Time now{milliseconds(5)};
  {
    Controller to(algorithm);
    to.on_cnp(now);
    EXPECT_EQ(to.rate(now) != Rate::unlimited(), cnps);
  }
  {
    Controller to(algorithm);
    EXPECT_EQ(to.on_lost(now), losses);
    EXPECT_EQ(to.rate(now) != Rate::unlimited(), losses);
  }
  Controller to(algorithm);
  Turn turn;
  for (int i = 0; i < 1000; ++i) {
    to.on_sent(turn, kPacket, now);
    to.on_acknowledged(kPacket, milliseconds(1), now += microseconds(10));
  }
  EXPECT_EQ(to.rate(now) != Rate::unlimited(), delay);
}

INSTANTIATE_TEST_SUITE_P(Controller, Listens,
                         testing::Values(std::tuple(Algorithm::kAuto, true, false, false),
                                         std::tuple(Algorithm::kDcqcn, true, false, false),
                                         std::tuple(Algorithm::kDelay, true, true, true),
                                         std::tuple(Algorithm::kOff, false, false, false)));

// A CNP says that packets queue on the way. From then on their round trips are listened to, unless DCQCN is to be
// alone.
TEST(Controller, ACnpBeginsControlByDelay) {
  for (const auto& [algorithm, expected] : {std::pair(Algorithm::kAuto, true), std::pair(Algorithm::kDcqcn, false)}) {
    Time now{milliseconds(5)};
    Controller to(algorithm);
    Turn turn;
    to.on_cnp(now);
    bool cut = false;
    for (int i = 0; i < 300; ++i) {
      to.on_sent(turn, kPacket, now);
      cut = to.on_acknowledged(kPacket, milliseconds(1), now += microseconds(10)) || cut;
    }
    EXPECT_EQ(cut, expected);
  }
}

}  // namespace
}  // namespace uroce::congestion
